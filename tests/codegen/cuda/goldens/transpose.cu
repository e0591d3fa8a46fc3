// transpose for cuda -arch=sm_90a

extern "C" __global__ void __launch_bounds__(256) transpose_kernel(
    const float* __restrict__ X,
    float* __restrict__ Y) {
  const int i1_0 = blockIdx.y;
  const int i0_0 = blockIdx.x;
  const int ty = threadIdx.y;
  const int tx = threadIdx.x;
  extern __shared__ __align__(128) unsigned char shared_memory[];  // 4224
  float* const X_shared = reinterpret_cast<float*>(shared_memory);
  for (int ax0_0 = 0; ax0_0 < 4; ++ax0_0) {
    if (i1_0 * 32 + ax0_0 * 8 + ty < 45 && i0_0 * 32 + tx < 70) {
      X_shared[ax0_0 * 264 + ty * 33 + tx] = X[i1_0 * 2240 + ax0_0 * 560 + ty * 70 + i0_0 * 32 + tx];
    }
  }
  __syncthreads();
  for (int i0_1_0 = 0; i0_1_0 < 4; ++i0_1_0) {
    if (i0_0 * 32 + i0_1_0 * 8 + ty < 70 && i1_0 * 32 + tx < 45) {
      Y[i0_0 * 1440 + i0_1_0 * 360 + ty * 45 + i1_0 * 32 + tx] = X_shared[tx * 33 + i0_1_0 * 8 + ty];
    }
  }
}
