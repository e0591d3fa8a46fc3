"""The code generator for GPUs of NVIDIA: lowering, CUDA C++, nvcc."""
