// sum for cuda -arch=sm_90a

extern "C" __global__ void __launch_bounds__(64) sum_kernel_0(
    const float* __restrict__ X,
    unsigned char* __restrict__ workspace) {
  const int i0 = blockIdx.y;
  const int r1_0 = blockIdx.x;
  const int r1_1_1 = threadIdx.x;
  extern __shared__ __align__(128) unsigned char shared_memory[];  // 16
  float* const Y_rf_warps = reinterpret_cast<float*>(shared_memory);
  float* const Y_rf = reinterpret_cast<float*>(workspace);
  float Y_rf_rf[1];
  Y_rf_rf[0] = 0.0f;
  for (int r1_1_0 = 0; r1_1_0 < 4; ++r1_1_0) {
    if (r1_1_0 * 64 + r1_1_1 < 250) {
      Y_rf_rf[0] = Y_rf_rf[0] + X[i0 * 1000 + r1_0 * 250 + r1_1_0 * 64 + r1_1_1];
    }
  }
  {
    const float Y_rf_1 = Y_rf_rf[0];
    const float Y_rf_2 = Y_rf_1 + __shfl_xor_sync(0xffffffffu, Y_rf_1, 16);
    const float Y_rf_3 = Y_rf_2 + __shfl_xor_sync(0xffffffffu, Y_rf_2, 8);
    const float Y_rf_4 = Y_rf_3 + __shfl_xor_sync(0xffffffffu, Y_rf_3, 4);
    const float Y_rf_5 = Y_rf_4 + __shfl_xor_sync(0xffffffffu, Y_rf_4, 2);
    const float Y_rf_6 = Y_rf_5 + __shfl_xor_sync(0xffffffffu, Y_rf_5, 1);
    if (r1_1_1 % 32 == 0) {
      Y_rf_warps[r1_1_1 / 32] = Y_rf_6;
    }
  }
  __syncthreads();
  const float Y_rf_1 = Y_rf_warps[0] + Y_rf_warps[1];
  if (r1_1_1 == 0) {
    Y_rf[r1_0 * 5 + i0] = Y_rf_1;
  }
}

extern "C" __global__ void __launch_bounds__(32) sum_kernel_1(
    float* __restrict__ Y,
    unsigned char* __restrict__ workspace) {
  const int i0_1 = threadIdx.x;
  float* const Y_rf = reinterpret_cast<float*>(workspace);
  if (i0_1 < 5) {
    Y[i0_1] = 0.0f;
  }
  for (int r1_0 = 0; r1_0 < 4; ++r1_0) {
    if (i0_1 < 5) {
      Y[i0_1] = Y[i0_1] + Y_rf[r1_0 * 5 + i0_1];
    }
  }
}
