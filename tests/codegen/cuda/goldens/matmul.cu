// matmul for cuda -arch=sm_90a

extern "C" __global__ void __launch_bounds__(64) matmul_kernel(
    const float* __restrict__ A,
    const float* __restrict__ B,
    float* __restrict__ C) {
  const int j_0 = blockIdx.y;
  const int i_0 = blockIdx.x;
  const int tx = threadIdx.x;
  extern __shared__ __align__(128) unsigned char shared_memory[];  // 2048
  float* const A_shared = reinterpret_cast<float*>(shared_memory);
  float* const B_shared = reinterpret_cast<float*>(shared_memory + 1024);
  alignas(16) float C_local[16];
  #pragma unroll
  for (int i_2_init = 0; i_2_init < 4; ++i_2_init) {
    #pragma unroll
    for (int j_2_init = 0; j_2_init < 4; ++j_2_init) {
      C_local[i_2_init * 4 + j_2_init] = 0.0f;
    }
  }
  for (int k_0 = 0; k_0 < 8; ++k_0) {
    __syncthreads();
    *reinterpret_cast<float4*>(&A_shared[tx * 4]) = *reinterpret_cast<const float4*>(&A[i_0 * 2048 + tx / 2 * 64 + k_0 * 8 + tx % 2 * 4]);
    *reinterpret_cast<float4*>(&B_shared[tx * 4]) = *reinterpret_cast<const float4*>(&B[k_0 * 768 + tx / 8 * 96 + j_0 * 32 + tx % 8 * 4]);
    __syncthreads();
    for (int k_1 = 0; k_1 < 8; ++k_1) {
      #pragma unroll
      for (int i_2 = 0; i_2 < 4; ++i_2) {
        #pragma unroll
        for (int j_2 = 0; j_2 < 4; ++j_2) {
          C_local[i_2 * 4 + j_2] = C_local[i_2 * 4 + j_2] + A_shared[tx / 8 * 32 + i_2 * 8 + k_1] * B_shared[k_1 * 32 + tx % 8 * 4 + j_2];
        }
      }
    }
  }
  #pragma unroll
  for (int i_1 = 0; i_1 < 4; ++i_1) {
    *reinterpret_cast<float4*>(&C[i_0 * 3072 + tx / 8 * 384 + i_1 * 96 + j_0 * 32 + tx % 8 * 4]) = *reinterpret_cast<const float4*>(&C_local[i_1 * 4]);
  }
}
