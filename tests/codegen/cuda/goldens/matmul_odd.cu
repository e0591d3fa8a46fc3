// matmul for cuda -arch=sm_90a

extern "C" __global__ void __launch_bounds__(64) matmul_kernel(
    const float* __restrict__ A,
    const float* __restrict__ B,
    float* __restrict__ C) {
  const int i_0 = blockIdx.x;
  const int tx = threadIdx.x;
  extern __shared__ __align__(128) unsigned char shared_memory[];  // 2144
  float* const A_shared = reinterpret_cast<float*>(shared_memory + 1120);
  float* const B_shared = reinterpret_cast<float*>(shared_memory);
  float C_local[16];
  #pragma unroll
  for (int i_2_init = 0; i_2_init < 4; ++i_2_init) {
    #pragma unroll
    for (int j_2_init = 0; j_2_init < 4; ++j_2_init) {
      if (i_0 * 32 + tx / 8 * 4 + i_2_init < 65 && tx % 8 * 4 + j_2_init < 31) {
        C_local[i_2_init * 4 + j_2_init] = 0.0f;
      }
    }
  }
  for (int k_0 = 0; k_0 < 3; ++k_0) {
    __syncthreads();
    for (int ax0_ax1_fused_0 = 0; ax0_ax1_fused_0 < 4; ++ax0_ax1_fused_0) {
      if (i_0 * 32 + ax0_ax1_fused_0 * 8 + tx / 8 < 65 && k_0 * 8 + tx % 8 < 19) {
        A_shared[ax0_ax1_fused_0 * 64 + tx] = A[i_0 * 608 + ax0_ax1_fused_0 * 152 + tx / 8 * 19 + k_0 * 8 + tx % 8];
      }
    }
    for (int ax0_ax1_fused_0 = 0; ax0_ax1_fused_0 < 4; ++ax0_ax1_fused_0) {
      if (k_0 * 8 + (ax0_ax1_fused_0 * 64 + tx) / 31 < 19 && ax0_ax1_fused_0 * 64 + tx < 248) {
        B_shared[ax0_ax1_fused_0 * 64 + tx] = B[k_0 * 248 + ax0_ax1_fused_0 * 64 + tx];
      }
    }
    __syncthreads();
    for (int k_1 = 0; k_1 < 8; ++k_1) {
      #pragma unroll
      for (int i_2 = 0; i_2 < 4; ++i_2) {
        #pragma unroll
        for (int j_2 = 0; j_2 < 4; ++j_2) {
          if (i_0 * 32 + tx / 8 * 4 + i_2 < 65 && tx % 8 * 4 + j_2 < 31 && k_0 * 8 + k_1 < 19) {
            C_local[i_2 * 4 + j_2] = C_local[i_2 * 4 + j_2] + A_shared[tx / 8 * 32 + i_2 * 8 + k_1] * B_shared[k_1 * 31 + tx % 8 * 4 + j_2];
          }
        }
      }
    }
  }
  #pragma unroll
  for (int i_1 = 0; i_1 < 4; ++i_1) {
    #pragma unroll
    for (int j_1 = 0; j_1 < 4; ++j_1) {
      if (i_0 * 32 + tx / 8 * 4 + i_1 < 65 && tx % 8 * 4 + j_1 < 31) {
        C[i_0 * 992 + tx / 8 * 124 + i_1 * 31 + tx % 8 * 4 + j_1] = C_local[i_1 * 4 + j_1];
      }
    }
  }
}
