"""The code generator for processors: LLVM IR, object code, call glue."""
