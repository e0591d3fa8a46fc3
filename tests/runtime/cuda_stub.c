/* A library with the functions of CUDA's driver that the runtime calls, for machines without one.

   Device memory is memory of the host, streams run at once, and kernels are the C functions below.
   Compiled against the toolkit's cuda.h, so that the declarations of the runtime are compared with
   NVIDIA's. Images begin with STUB. */

#include <cuda.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define EXPORT __attribute__((visibility("default")))
#define CHECK if (lost) return lost; if (!depth) return CUDA_ERROR_INVALID_CONTEXT

struct kernel { const char *name; int registers, local, shared, threads, parameters; };
static struct kernel kernels[] = {
  { "axpy", 24, 0, 128, 1024, 4 }, { "wide", 255, 16, 0, 256, 0 }, { "fault", 8, 0, 0, 1024, 0 } };
struct launched { unsigned extents[7]; CUstream stream; CUcontext context; };
struct graph { int count; struct { struct kernel *kernel; uint64_t words[4]; } nodes[64]; };

static CUresult lost;
static int contexts[3];
static __thread CUcontext stack[16];
static __thread int depth;
static struct launched last;
static struct graph *capturing;
static CUstream captured;
static int allocations, modules, streams, events, graphs, dynamic_shared;

/* What tests ask. */
EXPORT const struct launched *stub_last(void) { return &last; }
EXPORT int stub_depth(void) { return depth; }
EXPORT int stub_dynamic_shared(void) { return dynamic_shared; }
EXPORT int stub_objects(void) { return allocations + modules + streams + events + graphs; }
EXPORT void stub_reset(void) { lost = CUDA_SUCCESS; depth = 0; }
EXPORT CUcontext stub_other(void) { return (CUcontext)&contexts[2]; }

EXPORT CUresult cuInit(unsigned flags) { return flags ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS; }
EXPORT CUresult cuDriverGetVersion(int *version) { *version = 13000; return CUDA_SUCCESS; }
EXPORT CUresult cuGetErrorName(CUresult code, const char **name) {
  *name = code == CUDA_ERROR_ILLEGAL_ADDRESS ? "CUDA_ERROR_ILLEGAL_ADDRESS"
    : code == CUDA_ERROR_OUT_OF_MEMORY ? "CUDA_ERROR_OUT_OF_MEMORY"
    : code == CUDA_ERROR_INVALID_IMAGE ? "CUDA_ERROR_INVALID_IMAGE"
    : code == CUDA_ERROR_NOT_FOUND ? "CUDA_ERROR_NOT_FOUND" : "CUDA_ERROR_OTHER";
  return CUDA_SUCCESS;
}
EXPORT CUresult cuGetErrorString(CUresult code, const char **text) { return cuGetErrorName(code, text); }

/* Devices and contexts. */
EXPORT CUresult cuDeviceGetCount(int *count) {
  const char *wanted = getenv("STUB_DEVICES");
  *count = wanted ? atoi(wanted) : 2;
  return *count ? CUDA_SUCCESS : CUDA_ERROR_NO_DEVICE;
}
EXPORT CUresult cuDeviceGet(CUdevice *device, int ordinal) { *device = ordinal; return CUDA_SUCCESS; }
EXPORT CUresult cuDeviceGetName(char *name, int length, CUdevice device) {
  strncpy(name, device ? "Stub 1" : "Stub 0", length);
  return CUDA_SUCCESS;
}
EXPORT CUresult cuDeviceGetPCIBusId(char *id, int length, CUdevice device) {
  strncpy(id, device ? "0000:02:00.0" : "0000:01:00.0", length);
  return CUDA_SUCCESS;
}
EXPORT CUresult cuDeviceTotalMem_v2(size_t *bytes, CUdevice device) {
  *bytes = (size_t)1 << 36;
  return CUDA_SUCCESS;
}
EXPORT CUresult cuDeviceComputeCapability(int *major, int *minor, CUdevice device) {
  *major = device ? 8 : 9;
  *minor = 0;
  return CUDA_SUCCESS;
}
EXPORT CUresult cuDeviceGetAttribute(int *value, CUdevice_attribute attribute, CUdevice device) {
  *value = attribute == CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT ? 132
    : attribute == CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN ? 232448 : 1000 + (int)attribute;
  return CUDA_SUCCESS;
}
EXPORT CUresult cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice device) {
  *context = (CUcontext)&contexts[device];
  return CUDA_SUCCESS;
}
EXPORT CUresult cuDevicePrimaryCtxRelease_v2(CUdevice device) { return CUDA_SUCCESS; }
EXPORT CUresult cuCtxGetCurrent(CUcontext *context) {
  *context = depth ? stack[depth - 1] : NULL;
  return CUDA_SUCCESS;
}
EXPORT CUresult cuCtxSetCurrent(CUcontext context) {
  if (!depth) depth = 1;
  stack[depth - 1] = context;
  if (!context) depth--;
  return CUDA_SUCCESS;
}
EXPORT CUresult cuCtxPushCurrent_v2(CUcontext context) { stack[depth++] = context; return CUDA_SUCCESS; }
EXPORT CUresult cuCtxPopCurrent_v2(CUcontext *context) {
  if (!depth) return CUDA_ERROR_INVALID_CONTEXT;
  CUcontext popped = stack[--depth];
  if (context) *context = popped;
  return CUDA_SUCCESS;
}
EXPORT CUresult cuCtxGetDevice(CUdevice *device) {
  if (!depth) return CUDA_ERROR_INVALID_CONTEXT;
  *device = (int *)stack[depth - 1] - contexts;
  return CUDA_SUCCESS;
}
EXPORT CUresult cuCtxSynchronize(void) { CHECK; return CUDA_SUCCESS; }

/* Memory. */
EXPORT CUresult cuMemAlloc_v2(CUdeviceptr *address, size_t size) {
  CHECK;
  if (size > (size_t)1 << 30) return CUDA_ERROR_OUT_OF_MEMORY;
  *address = (CUdeviceptr)aligned_alloc(256, (size + 255) / 256 * 256);
  allocations++;
  return CUDA_SUCCESS;
}
EXPORT CUresult cuMemFree_v2(CUdeviceptr address) {
  CHECK;
  free((void *)address);
  allocations--;
  return CUDA_SUCCESS;
}
EXPORT CUresult cuMemGetInfo_v2(size_t *free, size_t *total) {
  CHECK;
  *free = (size_t)1 << 35;
  *total = (size_t)1 << 36;
  return CUDA_SUCCESS;
}
EXPORT CUresult cuMemcpyHtoD_v2(CUdeviceptr to, const void *from, size_t size) {
  CHECK;
  memcpy((void *)to, from, size);
  return CUDA_SUCCESS;
}
EXPORT CUresult cuMemcpyDtoH_v2(void *to, CUdeviceptr from, size_t size) {
  CHECK;
  memcpy(to, (void *)from, size);
  return CUDA_SUCCESS;
}
EXPORT CUresult cuMemcpyDtoDAsync_v2(CUdeviceptr to, CUdeviceptr from, size_t size, CUstream stream) {
  CHECK;
  memcpy((void *)to, (void *)from, size);
  return CUDA_SUCCESS;
}
EXPORT CUresult cuMemsetD8Async(CUdeviceptr to, unsigned char byte, size_t size, CUstream stream) {
  CHECK;
  memset((void *)to, byte, size);
  return CUDA_SUCCESS;
}
/* Addresses below 4096 are of no device, 4096 is of device 1, 8192 of the host, 12288 of another
   context. */
EXPORT CUresult cuPointerGetAttribute(void *value, CUpointer_attribute attribute, CUdeviceptr address) {
  CHECK;
  if (address < 4096) return CUDA_ERROR_INVALID_VALUE;
  if (attribute == CU_POINTER_ATTRIBUTE_MEMORY_TYPE)
    *(unsigned *)value = address == 8192 ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE;
  else if (attribute == CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL)
    *(int *)value = address == 4096;
  else if (attribute == CU_POINTER_ATTRIBUTE_CONTEXT)
    *(CUcontext *)value = (CUcontext)&contexts[address == 4096 ? 1 : address == 12288 ? 2 : 0];
  else
    return CUDA_ERROR_INVALID_VALUE;
  return CUDA_SUCCESS;
}

/* Code. */
EXPORT CUresult cuModuleLoadData(CUmodule *module, const void *image) {
  CHECK;
  if (memcmp(image, "STUB", 4)) return CUDA_ERROR_INVALID_IMAGE;
  *module = (CUmodule)kernels;
  modules++;
  return CUDA_SUCCESS;
}
EXPORT CUresult cuModuleUnload(CUmodule module) {
  CHECK;
  if (module != (CUmodule)kernels) return CUDA_ERROR_INVALID_HANDLE;
  modules--;
  return CUDA_SUCCESS;
}
EXPORT CUresult cuModuleGetFunction(CUfunction *function, CUmodule module, const char *name) {
  CHECK;
  for (unsigned n = 0; n < sizeof kernels / sizeof *kernels; n++)
    if (!strcmp(kernels[n].name, name)) {
      *function = (CUfunction)&kernels[n];
      return CUDA_SUCCESS;
    }
  return CUDA_ERROR_NOT_FOUND;
}
EXPORT CUresult cuFuncGetAttribute(int *value, CUfunction_attribute attribute, CUfunction function) {
  CHECK;
  struct kernel *kernel = (struct kernel *)function;
  *value = attribute == CU_FUNC_ATTRIBUTE_NUM_REGS ? kernel->registers
    : attribute == CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES ? kernel->local
    : attribute == CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES ? kernel->shared
    : attribute == CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK ? kernel->threads : -1;
  return *value < 0 ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}
EXPORT CUresult cuFuncSetAttribute(CUfunction function, CUfunction_attribute attribute, int value) {
  CHECK;
  if (attribute != CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES || value > 232448)
    return CUDA_ERROR_INVALID_VALUE;
  dynamic_shared = value;
  return CUDA_SUCCESS;
}
EXPORT CUresult cuOccupancyMaxActiveBlocksPerMultiprocessor(
    int *blocks, CUfunction function, int threads, size_t shared) {
  CHECK;
  *blocks = (2048 / threads) - (shared > 1024);
  return CUDA_SUCCESS;
}
static void run(struct kernel *kernel, const uint64_t *words) {
  if (!strcmp(kernel->name, "fault")) lost = CUDA_ERROR_ILLEGAL_ADDRESS;
  if (strcmp(kernel->name, "axpy")) return;
  float *x = (float *)words[0], *y = (float *)words[1], a;
  int count;
  memcpy(&a, &words[2], sizeof a);
  memcpy(&count, &words[3], sizeof count);
  for (int n = 0; n < count; n++) y[n] += a * x[n];
}
EXPORT CUresult cuLaunchKernel(
    CUfunction function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,
    unsigned block_y, unsigned block_z, unsigned shared, CUstream stream, void **parameters,
    void **extra) {
  CHECK;
  struct kernel *kernel = (struct kernel *)function;
  if (extra) return CUDA_ERROR_INVALID_VALUE;
  if (block_x * block_y * block_z > (unsigned)kernel->threads)
    return CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES;
  last = (struct launched){ { grid_x, grid_y, grid_z, block_x, block_y, block_z, shared }, stream,
    stack[depth - 1] };
  uint64_t words[4] = { 0 };
  for (int n = 0; n < kernel->parameters; n++) words[n] = *(uint64_t *)parameters[n];
  if (capturing && stream == captured) {
    capturing->nodes[capturing->count].kernel = kernel;
    memcpy(capturing->nodes[capturing->count++].words, words, sizeof words);
  } else
    run(kernel, words);
  return CUDA_SUCCESS;
}

/* Streams, events and graphs. */
static CUresult create(void **handle, int *count) {
  CHECK;
  *handle = malloc(8);
  ++*count;
  return CUDA_SUCCESS;
}
static CUresult destroy(void *handle, int *count) {
  CHECK;
  free(handle);
  --*count;
  return CUDA_SUCCESS;
}
EXPORT CUresult cuStreamCreate(CUstream *stream, unsigned flags) {
  return flags == CU_STREAM_NON_BLOCKING ? create((void **)stream, &streams) : CUDA_ERROR_INVALID_VALUE;
}
EXPORT CUresult cuStreamDestroy_v2(CUstream stream) { return destroy(stream, &streams); }
EXPORT CUresult cuStreamSynchronize(CUstream stream) { CHECK; return CUDA_SUCCESS; }
EXPORT CUresult cuStreamIsCapturing(CUstream stream, CUstreamCaptureStatus *status) {
  CHECK;
  int is = capturing && stream == captured;
  *status = is ? CU_STREAM_CAPTURE_STATUS_ACTIVE : CU_STREAM_CAPTURE_STATUS_NONE;
  return CUDA_SUCCESS;
}
EXPORT CUresult cuStreamWaitEvent(CUstream stream, CUevent event, unsigned flags) {
  CHECK;
  return flags || !event ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}
EXPORT CUresult cuEventCreate(CUevent *event, unsigned flags) {
  CUresult code = create((void **)event, &events);
  if (!code) *(uint64_t *)*event = flags == CU_EVENT_DISABLE_TIMING ? 1 : flags ? 2 : 0;
  return code;
}
EXPORT CUresult cuEventDestroy_v2(CUevent event) { return destroy(event, &events); }
EXPORT CUresult cuEventRecord(CUevent event, CUstream stream) { CHECK; return CUDA_SUCCESS; }
EXPORT CUresult cuEventQuery(CUevent event) {
  CHECK;
  return *(uint64_t *)event == 1 ? CUDA_ERROR_NOT_READY : CUDA_SUCCESS;
}
#undef cuEventElapsedTime
EXPORT CUresult cuEventElapsedTime(float *milliseconds, CUevent start, CUevent end) {
  CHECK;
  if (*(uint64_t *)start || *(uint64_t *)end) return CUDA_ERROR_INVALID_HANDLE;
  *milliseconds = 0.25f;
  return CUDA_SUCCESS;
}
EXPORT CUresult cuStreamBeginCapture_v2(CUstream stream, CUstreamCaptureMode mode) {
  CHECK;
  if (!stream || mode != CU_STREAM_CAPTURE_MODE_RELAXED) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  capturing = calloc(1, sizeof *capturing);
  captured = stream;
  graphs++;
  return CUDA_SUCCESS;
}
EXPORT CUresult cuStreamEndCapture(CUstream stream, CUgraph *graph) {
  CHECK;
  *graph = (CUgraph)capturing;
  capturing = NULL;
  return CUDA_SUCCESS;
}
EXPORT CUresult cuGraphInstantiateWithFlags(CUgraphExec *executable, CUgraph graph, unsigned long long flags) {
  CHECK;
  struct graph *copy = malloc(sizeof *copy);
  *copy = *(struct graph *)graph;
  *executable = (CUgraphExec)copy;
  graphs++;
  return CUDA_SUCCESS;
}
EXPORT CUresult cuGraphLaunch(CUgraphExec executable, CUstream stream) {
  CHECK;
  struct graph *graph = (struct graph *)executable;
  for (int n = 0; n < graph->count; n++) run(graph->nodes[n].kernel, graph->nodes[n].words);
  return CUDA_SUCCESS;
}
EXPORT CUresult cuGraphDestroy(CUgraph graph) { return destroy(graph, &graphs); }
EXPORT CUresult cuGraphExecDestroy(CUgraphExec executable) { return destroy(executable, &graphs); }
