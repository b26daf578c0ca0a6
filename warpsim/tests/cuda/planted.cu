// Kernels with planted bugs: argument BUG of a body names one of them, 0 none.
#include <cooperative_groups.h>
#include <cuda/atomic>
#include <cuda/barrier>
#include <cuda_pipeline.h>
namespace cg = cooperative_groups;
#define TWINS(name, params, args) \
  extern "C" __global__ void name##_0 params { name<0> args; } \
  extern "C" __global__ void name##_1 params { name<1> args; } \
  extern "C" __global__ void name##_2 params { name<2> args; }

// Bitonic sort of 256 keys. 1: no barrier between steps; 2: barrier in a divergent branch.
template <int BUG> __device__ void bitonic(int *x, int) {
  __shared__ int s[256];
  int t = threadIdx.x;
  s[t] = x[t];
  __syncthreads();
  for (int k = 2; k <= 256; k <<= 1)
    for (int j = k >> 1; j; j >>= 1) {
      int o = t ^ j;
      if (o > t) {
        int a = s[t], b = s[o];
        if ((a > b) == !(t & k)) { s[t] = b; s[o] = a; }
        if (BUG == 2) __syncthreads();
      }
      if (BUG == 0) __syncthreads();
    }
  x[t] = s[t];
}
TWINS(bitonic, (int *x, int n), (x, n))

// Histogram in shared memory, then in global memory. 1: bins not cleared; 2: one bin too many.
template <int BUG> __device__ void histogram(int *x, int n) {
  __shared__ int bins[64];
  if (BUG != 1) for (int b = threadIdx.x; b < 64; b += blockDim.x) bins[b] = 0;
  __syncthreads();
  for (int i = threadIdx.x; i < 256; i += blockDim.x) atomicAdd(&bins[x[i] & 63], 1);
  __syncthreads();
  for (int b = threadIdx.x; b < 64 + (BUG == 2); b += blockDim.x) atomicAdd(&x[n - 64 + b], bins[b]);
}
TWINS(histogram, (int *x, int n), (x, n))

// Stream compaction by warps. 1: the ballot asks lanes that do not come; 2: the offset is broadcast from a lane that has not got it.
template <int BUG> __device__ void compact(int *x, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  int v = x[i % 256];
  unsigned votes = 0, lane = threadIdx.x % 32;
  if (BUG != 1 || lane < 24) votes = __ballot_sync(~0u, v & 1);
  int base;
  if (lane == 0) base = atomicAdd(&x[n - 1], __popc(votes));
  base = __shfl_sync(~0u, base, BUG == 2 ? 1 : 0);
  if (v & 1) x[256 + base + __popc(votes & ((1u << lane) - 1))] = v;
}
TWINS(compact, (int *x, int n), (x, n))

// Tiles through a ring of cp.async stages. 1: waits for one group too few; 2: refills a stage that others still read.
template <int BUG> __device__ void ring(int *x, int n) {
  __shared__ int s[2][64];
  int t = threadIdx.x, sum = 0;
  auto fetch = [&](int k) { __pipeline_memcpy_async(&s[k & 1][t], &x[64 * (k & 3) + t], 4); __pipeline_commit(); };
  fetch(0);
  for (int k = 0; k < 4; k++) {
    if (k < 3) fetch(k + 1);
    if (k < 3) __pipeline_wait_prior(BUG == 1 ? 2 : 1); else __pipeline_wait_prior(0);
    __syncthreads();
    sum += s[k & 1][63 - t];
    if (BUG != 2) __syncthreads();
  }
  x[256 + t] = sum;
}
TWINS(ring, (int *x, int n), (x, n))

// cuda::barrier: a producer and a consumer warp. 1: the consumer waits for the wrong phase; 2: the producer does not wait for it.
template <int BUG> __device__ void specialised(int *x, int) {
  using Bar = cuda::barrier<cuda::thread_scope_block>;
  __shared__ alignas(8) unsigned char raw[2 * sizeof(Bar)];
  __shared__ int s[32];
  Bar *full = (Bar *)raw, *empty = full + 1;
  if (threadIdx.x == 0) { init(full, 32); init(empty, 32); }
  __syncthreads();
  int lane = threadIdx.x % 32, sum = 0;
  for (int k = 0; k < 4; k++)
    if (threadIdx.x < 32) {
      if (k && BUG != 2) empty->wait_parity((k - 1) & 1);
      s[lane] = x[32 * k + lane];
      (void)full->arrive();
    } else {
      full->wait_parity(BUG == 1 ? 1 - (k & 1) : k & 1);
      sum += s[31 - lane];
      (void)empty->arrive();
    }
  x[256 + threadIdx.x] = sum;
}
TWINS(specialised, (int *x, int n), (x, n))

// Decoupled look-back over blocks: sums of tiles. 1: the sum is published without a fence; 2: the flag is read relaxed, without a fence.
template <int BUG> __device__ void lookback(int *x, int n) {
  int *flags = x + 512, *sums = x + 520;
  int b = blockIdx.x;
  if (threadIdx.x) return;
  cuda::atomic_ref<int, cuda::thread_scope_device> mine(flags[b]);
  int before = 0;
  if (b) {
    cuda::atomic_ref<int, cuda::thread_scope_device> theirs(flags[b - 1]);
    while (!theirs.load(BUG == 2 ? cuda::memory_order_relaxed : cuda::memory_order_acquire));
    before = sums[b - 1];
  }
  sums[b] = before + x[b];
  mine.store(1, BUG == 1 ? cuda::memory_order_relaxed : cuda::memory_order_release);
}
TWINS(lookback, (int *x, int n), (x, n))

// Open addressing. 1: keys are put by plain stores; 2: the probe runs past the table.
template <int BUG> __device__ void insert(int *x, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x, key = i % 50 + 1;
  for (int at = key * 7 % 64, k = 0; k < 64; k++, at = BUG == 2 ? at + 16 : (at + 1) % 64) {
    int *slot = &x[n - 64 + at];
    if (BUG == 1) { if (*slot == 0 || *slot == key) { *slot = key; break; } continue; }
    int old = atomicCAS(slot, 0, key);
    if (BUG != 2 && (old == 0 || old == key)) break;
  }
}
TWINS(insert, (int *x, int n), (x, n))

// Cluster histogram in distributed shared memory. 1: bins are added to before the other block has cleared them; 2: the block leaves early.
template <int BUG> __device__ void cluster_bins(int *x, int n) {
  __shared__ int bins[32];
  auto cl = cg::this_cluster();
  bins[threadIdx.x] = 0;
  if (BUG == 1) __syncthreads(); else cl.sync();
  int v = x[threadIdx.x + 32 * cl.block_rank()];
  atomicAdd(cl.map_shared_rank(&bins[v & 31], v >> 5 & 1), 1);
  if (BUG != 2) cl.sync();
  x[256 + 32 * cl.block_rank() + threadIdx.x] = bins[threadIdx.x];
}
#define CLUSTER(k) extern "C" __global__ void __cluster_dims__(2) cluster_bins_##k(int *x, int n) { cluster_bins<k>(x, n); }
CLUSTER(0) CLUSTER(1) CLUSTER(2)

// LayerNorm of rows by vectors of four. 1: rows that are no multiple of 16 bytes; 2: lanes beyond the row take part in the sum.
template <int BUG> __device__ void layernorm(int *x, int n) {
  const float *row = (const float *)x + (BUG == 1 ? 30 : 32) * blockIdx.x;
  float4 v;
  if (threadIdx.x < 8) v = *(const float4 *)(row + 4 * threadIdx.x);
  float s = BUG == 2 || threadIdx.x < 8 ? v.x + v.y + v.z + v.w : 0;
  for (int d = 16; d; d >>= 1) s += __shfl_xor_sync(~0u, s, d);
  if (threadIdx.x == 0) x[256 + blockIdx.x] = s / 32 > 0 ? 1 : 2;
}
TWINS(layernorm, (int *x, int n), (x, n))

// Online softmax by a block, pairs of maximum and sum. 1: the last warp leaves no result; 2: no barrier before reuse.
template <int BUG> __device__ void softmax(int *x, int n) {
  __shared__ float m[4], z[4];
  for (int row = 0; row < 2; row++) {
    float v = x[row * 128 + threadIdx.x] % 7, mx = v, s = 1;
    for (int d = 16; d; d >>= 1) {
      float om = __shfl_xor_sync(~0u, mx, d), os = __shfl_xor_sync(~0u, s, d), nm = fmaxf(mx, om);
      s = s * __expf(mx - nm) + os * __expf(om - nm), mx = nm;
    }
    if (threadIdx.x % 32 == 0 && (BUG != 1 || threadIdx.x < 96)) m[threadIdx.x / 32] = mx, z[threadIdx.x / 32] = s;
    __syncthreads();
    float all = m[0], sum = 0;
    for (int w = 1; w < 4; w++) all = fmaxf(all, m[w]);
    for (int w = 0; w < 4; w++) sum += z[w] * __expf(m[w] - all);
    x[256 + row * 128 + threadIdx.x] = (int)(1000 * __expf(v - all) / sum);
    if (BUG != 2) __syncthreads();
  }
}
TWINS(softmax, (int *x, int n), (x, n))

// Last block reduces. 1: no fence before the ticket; 2: only thread 0's own sum is fenced, after no barrier.
template <int BUG> __device__ void last_block(int *x, int n) {
  __shared__ bool last;
  x[512 + blockIdx.x * blockDim.x + threadIdx.x] = x[threadIdx.x];
  if (BUG != 1) __threadfence();
  if (BUG != 2) __syncthreads();
  if (threadIdx.x == 0) last = atomicAdd(&x[n - 1], 1) == gridDim.x - 1;
  __syncthreads();
  if (last) {
    int s = 0;
    for (unsigned b = 0; b < gridDim.x; b++) s += x[512 + b * blockDim.x + (threadIdx.x + 1) % blockDim.x];
    x[256 + threadIdx.x] = s;
  }
}
TWINS(last_block, (int *x, int n), (x, n))

// Arrays beside each other. 1: an element too many is written; 2: a row too many is read.
template <int BUG> __device__ void neighbours(int *x, int n) {
  __shared__ int a[64], b[4][17], c[64];
  a[threadIdx.x + (BUG == 1)] = x[threadIdx.x];
  b[threadIdx.x / 16][threadIdx.x % 16] = x[threadIdx.x + 64];
  c[threadIdx.x] = x[threadIdx.x + 128];
  __syncthreads();
  int next = 63 - threadIdx.x;
  x[256 + threadIdx.x] = a[next + (BUG == 1)] + b[next / 16 + (BUG == 2)][next % 16] + c[next];
}
TWINS(neighbours, (int *x, int n), (x, n))

// Two warps produce, two consume, at named barriers. 1: each side waits for as many as it has itself; 2: nobody says that the tile is free.
template <int BUG> __device__ void named(int *x, int) {
  __shared__ int s[64];
  int t = threadIdx.x, sum = 0, both = BUG == 1 ? 64 : 128;
  for (int k = 0; k < 4; k++)
    if (t < 64) {
      if (k && BUG != 2) asm volatile("bar.sync 2, 128;" ::: "memory");
      s[t] = x[64 * k + t];
      asm volatile("bar.arrive 1, %0;" ::"r"(both) : "memory");
    } else {
      asm volatile("bar.sync 1, %0;" ::"r"(both) : "memory");
      sum += s[127 - t];
      if (k < 3 && BUG != 2) asm volatile("bar.arrive 2, 128;" ::: "memory");
    }
  if (t >= 64) x[256 + t - 64] = sum;
}
TWINS(named, (int *x, int n), (x, n))

// Sums by shuffles where the last warp is half a warp. 1: its lanes add what absent ones hold; 2: the first lane has returned before it is read.
template <int BUG> __device__ void half_warp(int *x, int) {
  int t = threadIdx.x, lane = t % 32, here = t < 32 ? 32 : 16, v = x[t];
  if (BUG == 2 && lane == 0) return;
  for (int d = 16; d; d >>= 1) {
    int other = __shfl_down_sync(~0u, v, d);
    if (BUG || lane + d < here) v += other;
  }
  if (BUG == 2) v = __shfl_sync(~0u, v, 0);
  if (lane == 0 || BUG == 2) x[256 + t] = v;
}
TWINS(half_warp, (int *x, int n), (x, n))

// An mbarrier as the block's barrier. 1: it counts one thread too few; 2: one thread arrives twice.
template <int BUG> __device__ void arrivals(int *x, int) {
  __shared__ int s[64];
  __shared__ alignas(8) unsigned long long b;
  unsigned at = __cvta_generic_to_shared(&b);
  int t = threadIdx.x, sum = 0;
  if (t == 0) asm volatile("mbarrier.init.shared.b64 [%0], %1;" ::"r"(at), "r"(BUG == 1 ? 63 : 64) : "memory");
  __syncthreads();
  for (int k = 0; k < 3; k++) {
    s[t] = x[64 * k + t];
    for (int n = BUG == 2 && t == 5 ? 2 : 1; n; n--) asm volatile("mbarrier.arrive.shared.b64 _, [%0];" ::"r"(at) : "memory");
    asm volatile("{ .reg .pred p; W: mbarrier.try_wait.parity.shared.b64 p, [%0], %1; @!p bra W; }" ::"r"(at), "r"(k & 1) : "memory");
    sum += s[63 - t];
    __syncthreads();
  }
  x[256 + t] = sum;
}
TWINS(arrivals, (int *x, int n), (x, n))

// Blocks of a cluster send each other a row by st.async. 1: before the other's mbarrier is there; 2: half of its bytes are expected.
template <int BUG> __device__ void peers(int *x, int) {
  __shared__ int s[32];
  __shared__ alignas(8) unsigned long long b;
  unsigned at = __cvta_generic_to_shared(&b), to, bar;
  auto cl = cg::this_cluster();
  int t = threadIdx.x, r = cl.block_rank();
  if (t == 0) {
    asm volatile("mbarrier.init.shared.b64 [%0], 1;" ::"r"(at) : "memory");
    asm volatile("mbarrier.arrive.expect_tx.shared.b64 _, [%0], %1;" ::"r"(at), "r"(BUG == 2 ? 64 : 128) : "memory");
  }
  if (BUG == 1) __syncthreads(); else cl.sync();
  asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(to) : "r"((unsigned)__cvta_generic_to_shared(&s[t])), "r"(1 - r));
  asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(bar) : "r"(at), "r"(1 - r));
  asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.u32 [%0], %1, [%2];" ::"r"(to), "r"(x[32 * r + t]), "r"(bar) : "memory");
  asm volatile("{ .reg .pred p; W: mbarrier.try_wait.parity.shared.b64 p, [%0], 0; @!p bra W; }" ::"r"(at) : "memory");
  x[256 + 32 * r + t] = s[31 - t];
}
#define PEERS(k) extern "C" __global__ void __cluster_dims__(2) peers_##k(int *x, int n) { peers<k>(x, n); }
PEERS(0) PEERS(1) PEERS(2)
