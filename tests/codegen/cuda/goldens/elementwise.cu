// add_relu for cuda -arch=sm_90a

#include <cuda_bf16.h>

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

extern "C" __global__ void __launch_bounds__(128) add_relu_kernel(
    const __nv_bfloat16* __restrict__ A,
    const __nv_bfloat16* __restrict__ B,
    __nv_bfloat16* __restrict__ C) {
  const int i0_0 = blockIdx.x;
  const int i0_1 = threadIdx.x;
  if (i0_0 < 4) {
    alignas(16) __nv_bfloat16 A_vector[8];
    alignas(16) __nv_bfloat16 B_vector[8];
    alignas(16) __nv_bfloat16 C_vector[8];
    *reinterpret_cast<uint4*>(&A_vector[0]) = *reinterpret_cast<const uint4*>(&A[i0_0 * 1024 + i0_1 * 8]);
    *reinterpret_cast<uint4*>(&B_vector[0]) = *reinterpret_cast<const uint4*>(&B[i0_0 * 1024 + i0_1 * 8]);
    #pragma unroll
    for (int i0_2 = 0; i0_2 < 8; ++i0_2) {
      C_vector[i0_2] = __float2bfloat16_rn(nan_max(__bfloat162float(__float2bfloat16_rn(__bfloat162float(A_vector[i0_2]) + __bfloat162float(B_vector[i0_2]))), 0.0f));
    }
    *reinterpret_cast<uint4*>(&C[i0_0 * 1024 + i0_1 * 8]) = *reinterpret_cast<const uint4*>(&C_vector[0]);
  } else {
    #pragma unroll
    for (int i0_2 = 0; i0_2 < 8; ++i0_2) {
      if (i0_0 * 1024 + i0_1 * 8 + i0_2 < 4099) {
        C[i0_0 * 1024 + i0_1 * 8 + i0_2] = __float2bfloat16_rn(nan_max(__bfloat162float(__float2bfloat16_rn(__bfloat162float(A[i0_0 * 1024 + i0_1 * 8 + i0_2]) + __bfloat162float(B[i0_0 * 1024 + i0_1 * 8 + i0_2]))), 0.0f));
      }
    }
  }
}
