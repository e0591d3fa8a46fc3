// conv2d for cuda -arch=sm_90a

extern "C" __global__ void __launch_bounds__(16) conv2d_kernel(
    const float* __restrict__ X,
    const float* __restrict__ W,
    float* __restrict__ Y) {
  const int n_o_fused = blockIdx.y;
  const int y_x_0_fused_0 = blockIdx.x;
  const int y_x_0_fused_1 = threadIdx.x;
  float Y_local[4];
  #pragma unroll
  for (int x_1 = 0; x_1 < 4; ++x_1) {
    if ((y_x_0_fused_0 * 16 + y_x_0_fused_1) % 3 * 4 + x_1 < 9 && y_x_0_fused_0 * 16 + y_x_0_fused_1 < 27) {
      Y_local[x_1] = 0.0f;
    }
  }
  for (int rc = 0; rc < 3; ++rc) {
    for (int ry = 0; ry < 3; ++ry) {
      for (int rx = 0; rx < 3; ++rx) {
        #pragma unroll
        for (int x_1 = 0; x_1 < 4; ++x_1) {
          if ((y_x_0_fused_0 * 16 + y_x_0_fused_1) % 3 * 4 + x_1 < 9 && y_x_0_fused_0 * 16 + y_x_0_fused_1 < 27) {
            Y_local[x_1] = Y_local[x_1] + ((y_x_0_fused_0 * 16 + y_x_0_fused_1) / 3 + ry >= 1 && (y_x_0_fused_0 * 16 + y_x_0_fused_1) / 3 + ry < 10 && (y_x_0_fused_0 * 16 + y_x_0_fused_1) % 3 * 4 + x_1 + rx >= 1 && (y_x_0_fused_0 * 16 + y_x_0_fused_1) % 3 * 4 + x_1 + rx < 10 ? X[rc * 81 + (y_x_0_fused_0 * 16 + y_x_0_fused_1) / 3 * 9 + ry * 9 + (y_x_0_fused_0 * 16 + y_x_0_fused_1) % 3 * 4 + x_1 + rx - 10] : 0.0f) * W[n_o_fused * 27 + rc * 9 + ry * 3 + rx];
          }
        }
      }
    }
  }
  #pragma unroll
  for (int x = 0; x < 4; ++x) {
    if ((y_x_0_fused_0 * 16 + y_x_0_fused_1) / 3 < 9 && (y_x_0_fused_0 * 16 + y_x_0_fused_1) % 3 * 4 + x < 9) {
      Y[n_o_fused * 81 + (y_x_0_fused_0 * 16 + y_x_0_fused_1) / 3 * 9 + (y_x_0_fused_0 * 16 + y_x_0_fused_1) % 3 * 4 + x] = Y_local[x];
    }
  }
}
