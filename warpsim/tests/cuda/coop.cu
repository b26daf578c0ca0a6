// Blocks and warps that work together: pipelines, clusters, the last block, look-back.
#include <cooperative_groups.h>
#include <cooperative_groups/reduce.h>
#include <cooperative_groups/scan.h>
#include <cooperative_groups/memcpy_async.h>
#include <cuda/atomic>
#include <cuda/barrier>
#include <cuda/pipeline>
#include <cub/device/device_scan.cuh>
#pragma nv_diag_suppress static_var_with_dynamic_init
namespace cg = cooperative_groups;
// The last block to finish adds up what all stored: CUDA's threadFenceReduction sample.
__device__ unsigned finished = 0;
extern "C" __global__ void last_block(const float *x, volatile float *part, float *out, int n) {
  __shared__ float s[256];
  __shared__ bool last;
  float v = 0;
  for (int i = blockIdx.x * 256 + threadIdx.x; i < n; i += gridDim.x * 256) v += x[i];
  s[threadIdx.x] = v;
  __syncthreads();
  for (int d = 128; d; d /= 2) { if (threadIdx.x < d) s[threadIdx.x] += s[threadIdx.x + d]; __syncthreads(); }
  if (threadIdx.x == 0) {
    part[blockIdx.x] = s[0];
    __threadfence();
    last = atomicInc(&finished, gridDim.x - 1) == gridDim.x - 1;
  }
  __syncthreads();
  if (last && threadIdx.x < 32) {
    float t = 0;
    for (int i = threadIdx.x; i < gridDim.x; i += 32) t += part[i];
    t = cg::reduce(cg::tiled_partition<32>(cg::this_thread_block()), t, cg::plus<float>());
    if (threadIdx.x == 0) *out = t;
  }
}
// The same with scoped atomics instead of a fence.
extern "C" __global__ void last_block_scoped(const int *x, int *part, int *count, int *out) {
  __shared__ bool last;
  auto block = cg::this_thread_block();
  int v = cg::reduce(cg::tiled_partition<32>(block), x[blockIdx.x * 32 + threadIdx.x], cg::plus<int>());
  if (threadIdx.x == 0) {
    part[blockIdx.x] = v;
    cuda::atomic_ref<int, cuda::thread_scope_device> c(*count);
    last = c.fetch_add(1, cuda::memory_order_acq_rel) == gridDim.x - 1;
    if (last) { int t = 0; for (int i = 0; i < gridDim.x; i++) t += part[i]; *out = t; }
  }
}
// A block-wide cuda::pipeline of three stages, filled by cooperative copies.
extern "C" __global__ void staged(const int *x, int *y, int tiles) {
  __shared__ alignas(16) int buf[3][128];
  __shared__ cuda::pipeline_shared_state<cuda::thread_scope_block, 3> state;
  auto block = cg::this_thread_block();
  auto pipe = cuda::make_pipeline(block, &state);
  for (int t = 0, next = 0; t < tiles; t++) {
    for (; next < tiles && next < t + 3; next++) {
      pipe.producer_acquire();
      cuda::memcpy_async(block, buf[next % 3], x + next * 128, cuda::aligned_size_t<16>(512), pipe);
      pipe.producer_commit();
    }
    pipe.consumer_wait();
    y[t * 128 + threadIdx.x] = buf[t % 3][127 - threadIdx.x] + t;
    pipe.consumer_release();
  }
}
// One half of the block produces, the other consumes.
extern "C" __global__ void split_pipeline(const int *x, int *y, int tiles) {
  __shared__ alignas(16) int buf[2][64];
  __shared__ cuda::pipeline_shared_state<cuda::thread_scope_block, 2> state;
  auto block = cg::this_thread_block();
  bool producer = threadIdx.x < 64;
  auto pipe = cuda::make_pipeline(block, &state, producer ? cuda::pipeline_role::producer : cuda::pipeline_role::consumer);
  int l = threadIdx.x % 64;
  for (int t = 0; t < tiles; t++) {
    if (producer) {
      pipe.producer_acquire();
      cuda::memcpy_async(&buf[t % 2][l], &x[t * 64 + l], cuda::aligned_size_t<4>(4), pipe);
      pipe.producer_commit();
    } else {
      pipe.consumer_wait();
      y[t * 64 + l] = buf[t % 2][l ^ 1] * 3;
      pipe.consumer_release();
    }
  }
}
// A bulk copy that a cuda::barrier counts.
extern "C" __global__ void bulk(const int *x, int *y) {
  __shared__ alignas(16) int buf[256];
  __shared__ cuda::barrier<cuda::thread_scope_block> bar;
  if (threadIdx.x == 0) init(&bar, blockDim.x);
  __syncthreads();
  cuda::barrier<cuda::thread_scope_block>::arrival_token token;
  if (threadIdx.x == 0) {
    cuda::device::memcpy_async_tx(buf, x + blockIdx.x * 256, cuda::aligned_size_t<16>(1024), bar);
    token = cuda::device::barrier_arrive_tx(bar, 1, 1024);
  } else token = bar.arrive();
  bar.wait(std::move(token));
  for (int i = threadIdx.x; i < 256; i += blockDim.x) y[blockIdx.x * 256 + i] = buf[255 - i];
}
// A histogram whose bins lie in the shared memory of a cluster's blocks.
extern "C" __global__ void __cluster_dims__(4) cluster_histogram(const int *x, int *bins, int n) {
  __shared__ int mine[32];
  auto cluster = cg::this_cluster();
  if (threadIdx.x < 32) mine[threadIdx.x] = 0;
  cluster.sync();
  for (int i = cluster.block_rank() * blockDim.x + threadIdx.x; i < n; i += cluster.num_threads()) {
    int b = x[i];
    atomicAdd(cluster.map_shared_rank(mine, b / 32) + b % 32, 1);
  }
  cluster.sync();
  if (threadIdx.x < 32) atomicAdd(&bins[cluster.block_rank() * 32 + threadIdx.x], mine[threadIdx.x]);
}
// A prefix sum over a cluster: every block reads what the blocks before it stored.
extern "C" __global__ void cluster_scan(const int *x, int *y) {
  __shared__ int total;
  auto cluster = cg::this_cluster();
  auto tile = cg::tiled_partition<32>(cg::this_thread_block());
  int i = blockIdx.x * 32 + threadIdx.x;
  int v = cg::inclusive_scan(tile, x[i]);
  if (threadIdx.x == 31) total = v;
  cluster.barrier_wait(cluster.barrier_arrive());
  for (int r = 0; r < cluster.block_rank(); r++) v += *cluster.map_shared_rank(&total, r);
  y[i] = v;
  cluster.sync();
}
extern "C" __global__ void partitions(const int *x, int *y) {
  auto tile = cg::tiled_partition<32>(cg::this_thread_block());
  int v = x[threadIdx.x];
  auto same = cg::labeled_partition(tile, v % 5);
  auto odd = cg::binary_partition(tile, v & 1);
  y[threadIdx.x] = cg::reduce(same, v, cg::plus<int>()) * 100 + cg::reduce(odd, v, cg::less<int>());
  y[blockDim.x + threadIdx.x] = cg::exclusive_scan(same, v) + tile.shfl_down(v, 2) + (int)tile.match_any(v);
}
// Instantiates CUB's kernels: a scan with decoupled look-back.
void instantiate(const int *x, int *y, int n) { size_t bytes; cub::DeviceScan::InclusiveSum(nullptr, bytes, x, y, n); }

// Groups of two warps, which meet in what the system reserves of shared memory.
extern "C" __global__ void wide_tiles(const int *x, int *y) {
  __shared__ cg::block_tile_memory<128> memory;
  __shared__ int kept[64];
  if (threadIdx.x < 64) kept[threadIdx.x] = x[threadIdx.x];
  __syncthreads();
  auto tile = cg::tiled_partition<64>(cg::this_thread_block(memory));
  int sum = cg::reduce(tile, x[threadIdx.x], cg::plus<int>());
  tile.sync();
  y[threadIdx.x] = sum - kept[threadIdx.x % 64];
}
