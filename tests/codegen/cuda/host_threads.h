// What CUDA C++ has and C++ has not, for one block at a time: threads are contexts that run in turn.
#include <cuda_runtime.h>
#include <ucontext.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <numeric>
#include <utility>
#include <vector>

#undef __launch_bounds__
#define __launch_bounds__(...)

static uint3 threadIdx, blockIdx;
unsigned char shared_memory[232448] __attribute__((aligned(128)));

namespace host {

enum State { READY, AT_WARP, AT_BLOCK, DONE };
struct Thread {
  ucontext_t context;
  State state;
  uint3 index;
};
static std::vector<Thread> threads;
static std::vector<unsigned long long> lanes;
static std::vector<unsigned> shuffles;  // how many each thread has taken part in
static bool alone;                      // a thread shuffled with one that did not
static std::vector<char> stacks;
static ucontext_t scheduler;
static unsigned current;
static void (*entry)(void**);
static void** arguments;
static const size_t STACK = 1 << 16;

static void wait(State state) {
  const unsigned own = current;
  threads[own].state = state;
  swapcontext(&threads[own].context, &scheduler);
  current = own;
  threadIdx = threads[own].index;
}

static void body() {
  entry(arguments);
  threads[current].state = DONE;
  swapcontext(&threads[current].context, &scheduler);
}

// All threads of a group wait, or have ended: they go on.
static bool release(size_t first, size_t last, State state) {
  bool any = false;
  for (size_t t = first; t < last; ++t) {
    if (threads[t].state == state) any = true;
    else if (threads[t].state != DONE) return false;
  }
  for (size_t t = first; t < last; ++t)
    if (threads[t].state == state) threads[t].state = READY;
  return any;
}

// Whether the threads of a block end, in an order of turns by `stride`, or the next one that takes
// all of them in turn.
static bool run_block(uint3 extents, unsigned stride) {
  const size_t count = (size_t)extents.x * extents.y * extents.z;
  while (std::gcd((size_t)stride, count) != 1) ++stride;
  threads.resize(count);
  lanes.resize(count);
  shuffles.assign(count, 0);
  stacks.resize(count * STACK);
  memset(shared_memory, 0xff, sizeof shared_memory);
  for (size_t t = 0; t < count; ++t) {
    Thread& thread = threads[t];
    thread.state = READY;
    thread.index.x = t % extents.x;
    thread.index.y = t / extents.x % extents.y;
    thread.index.z = t / extents.x / extents.y;
    getcontext(&thread.context);
    thread.context.uc_stack.ss_sp = stacks.data() + t * STACK;
    thread.context.uc_stack.ss_size = STACK;
    makecontext(&thread.context, body, 0);
  }
  for (;;) {
    bool moved = false, done = true;
    for (size_t n = 0; n < count; ++n) {
      const size_t t = n * stride % count;
      if (threads[t].state == READY) {
        current = t;
        threadIdx = threads[t].index;
        swapcontext(&scheduler, &threads[t].context);
        moved = true;
      }
      done = done && threads[t].state == DONE;
    }
    if (done) return true;
    for (size_t t = 0; t < count; t += 32)
      moved = release(t, t + 32 < count ? t + 32 : count, AT_WARP) || moved;
    if (!moved && !release(0, count, AT_BLOCK)) return false;
  }
}

template <typename... P, size_t... N>
void call(void (*kernel)(P...), void** a, std::index_sequence<N...>) {
  kernel(*static_cast<typename std::decay<P>::type*>(a[N])...);
}

template <typename... P>
void invoke(void (*kernel)(P...), void** a) {
  call(kernel, a, std::index_sequence_for<P...>());
}

}  // namespace host

static void __syncthreads() { host::wait(host::AT_BLOCK); }
static void __syncwarp() { host::wait(host::AT_WARP); }

template <typename T>
T __shfl_xor_sync(unsigned, T value, int mask) {
  const unsigned own = host::current;
  memcpy(&host::lanes[own], &value, sizeof value);
  ++host::shuffles[own];
  __syncwarp();
  if (host::shuffles[own ^ mask] < host::shuffles[own]) host::alone = true;
  T other;
  memcpy(&other, &host::lanes[own ^ mask], sizeof other);
  __syncwarp();
  return other;
}

template <typename A, typename B>
static typename std::common_type<A, B>::type min(A a, B b) { return b < a ? b : a; }
template <typename A, typename B>
static typename std::common_type<A, B>::type max(A a, B b) { return a < b ? b : a; }
static float rsqrtf(float x) { return 1.0f / sqrtf(x); }
static double rsqrt(double x) { return 1.0 / sqrt(x); }
static float __int_as_float(int x) { float y; memcpy(&y, &x, 4); return y; }
static double __longlong_as_double(long long x) { double y; memcpy(&y, &x, 8); return y; }

extern "C" int launch(void (*entry)(void**), void** arguments, const unsigned* grid,
                      const unsigned* block, unsigned stride) {
  host::entry = entry;
  host::arguments = arguments;
  for (unsigned z = 0; z < grid[2]; ++z)
    for (unsigned y = 0; y < grid[1]; ++y)
      for (unsigned x = 0; x < grid[0]; ++x) {
        blockIdx.x = x, blockIdx.y = y, blockIdx.z = z;
        uint3 extents;
        extents.x = block[0], extents.y = block[1], extents.z = block[2];
        host::alone = false;
        if (!host::run_block(extents, stride) || host::alone) return 1;
      }
  return 0;
}
