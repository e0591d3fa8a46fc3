"""The sketch rules for GPUs of NVIDIA."""
