// softmax for cuda -arch=sm_90a

// The larger of two floats; NaN if one of them is.
__device__ __forceinline__ float nan_max(float a, float b) {
#ifdef __CUDA_ARCH__
  float c;
  asm("max.NaN.f32 %0, %1, %2;" : "=f"(c) : "f"(a), "f"(b));
  return c;
#else
  return a >= b || a != a ? a : b;
#endif
}
__device__ __forceinline__ double nan_max(double a, double b) {
  return a >= b || a != a ? a : b;
}

extern "C" __global__ void __launch_bounds__(128) softmax_kernel(
    const float* __restrict__ X,
    float* __restrict__ Y) {
  const int i0_0 = blockIdx.x;
  const int tx = threadIdx.x;
  extern __shared__ __align__(128) unsigned char shared_memory[];  // 32
  float* const Y_max_warps = reinterpret_cast<float*>(shared_memory);
  float* const Y_sum_warps = reinterpret_cast<float*>(shared_memory + 16);
  float Y_max[1];
  float Y_exp[4];
  float Y_sum[1];
  float X_local[4];
  float Y_max_rf[1];
  float Y_sum_rf[1];
  #pragma unroll
  for (int ax1_0 = 0; ax1_0 < 4; ++ax1_0) {
    if (ax1_0 * 128 + tx < 500) {
      X_local[ax1_0] = X[i0_0 * 500 + ax1_0 * 128 + tx];
    }
  }
  Y_max_rf[0] = -__int_as_float(0x7f800000);
  #pragma unroll
  for (int r_0 = 0; r_0 < 4; ++r_0) {
    if (r_0 * 128 + tx < 500) {
      Y_max_rf[0] = nan_max(Y_max_rf[0], X_local[r_0]);
    }
  }
  {
    const float Y_max_1 = Y_max_rf[0];
    const float Y_max_2 = nan_max(Y_max_1, __shfl_xor_sync(0xffffffffu, Y_max_1, 16));
    const float Y_max_3 = nan_max(Y_max_2, __shfl_xor_sync(0xffffffffu, Y_max_2, 8));
    const float Y_max_4 = nan_max(Y_max_3, __shfl_xor_sync(0xffffffffu, Y_max_3, 4));
    const float Y_max_5 = nan_max(Y_max_4, __shfl_xor_sync(0xffffffffu, Y_max_4, 2));
    const float Y_max_6 = nan_max(Y_max_5, __shfl_xor_sync(0xffffffffu, Y_max_5, 1));
    if (tx % 32 == 0) {
      Y_max_warps[tx / 32] = Y_max_6;
    }
  }
  __syncthreads();
  {
    const float Y_max_1 = nan_max(nan_max(Y_max_warps[0], Y_max_warps[1]), nan_max(Y_max_warps[2], Y_max_warps[3]));
    Y_max[0] = Y_max_1;
  }
  #pragma unroll
  for (int i1_0 = 0; i1_0 < 4; ++i1_0) {
    if (i1_0 * 128 + tx < 500) {
      Y_exp[i1_0] = expf(X[i0_0 * 500 + i1_0 * 128 + tx] - Y_max[0]);
    }
  }
  Y_sum_rf[0] = 0.0f;
  #pragma unroll
  for (int r_0 = 0; r_0 < 4; ++r_0) {
    if (r_0 * 128 + tx < 500) {
      Y_sum_rf[0] = Y_sum_rf[0] + Y_exp[r_0];
    }
  }
  {
    const float Y_sum_1 = Y_sum_rf[0];
    const float Y_sum_2 = Y_sum_1 + __shfl_xor_sync(0xffffffffu, Y_sum_1, 16);
    const float Y_sum_3 = Y_sum_2 + __shfl_xor_sync(0xffffffffu, Y_sum_2, 8);
    const float Y_sum_4 = Y_sum_3 + __shfl_xor_sync(0xffffffffu, Y_sum_3, 4);
    const float Y_sum_5 = Y_sum_4 + __shfl_xor_sync(0xffffffffu, Y_sum_4, 2);
    const float Y_sum_6 = Y_sum_5 + __shfl_xor_sync(0xffffffffu, Y_sum_5, 1);
    if (tx % 32 == 0) {
      Y_sum_warps[tx / 32] = Y_sum_6;
    }
  }
  __syncthreads();
  {
    const float Y_sum_1 = Y_sum_warps[0] + Y_sum_warps[1] + (Y_sum_warps[2] + Y_sum_warps[3]);
    Y_sum[0] = Y_sum_1;
  }
  #pragma unroll
  for (int i1_0 = 0; i1_0 < 4; ++i1_0) {
    if (i1_0 * 128 + tx < 500) {
      Y[i0_0 * 500 + i1_0 * 128 + tx] = Y_exp[i1_0] * (1.0f / Y_sum[0]);
    }
  }
}
