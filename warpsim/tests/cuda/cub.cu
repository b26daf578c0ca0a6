// Block algorithms of CUB.
#include <cub/block/block_radix_sort.cuh>
#include <cub/block/block_scan.cuh>
#include <cub/block/block_reduce.cuh>
#include <cub/block/block_histogram.cuh>
#include <cub/block/block_load.cuh>
#include <cub/block/block_store.cuh>
extern "C" __global__ void block_sort(const int *x, int *y) {
  using Load = cub::BlockLoad<int, 128, 4, cub::BLOCK_LOAD_TRANSPOSE>;
  using Sort = cub::BlockRadixSort<int, 128, 4>;
  using Store = cub::BlockStore<int, 128, 4, cub::BLOCK_STORE_WARP_TRANSPOSE>;
  __shared__ union { Load::TempStorage load; Sort::TempStorage sort; Store::TempStorage store; } temp;
  int v[4];
  Load(temp.load).Load(x + blockIdx.x * 512, v);
  __syncthreads();
  Sort(temp.sort).Sort(v);
  __syncthreads();
  Store(temp.store).Store(y + blockIdx.x * 512, v);
}
extern "C" __global__ void block_scan(const float *x, float *y, float *total) {
  using Scan = cub::BlockScan<float, 256, cub::BLOCK_SCAN_RAKING>;
  using Reduce = cub::BlockReduce<float, 256, cub::BLOCK_REDUCE_RAKING>;
  __shared__ Scan::TempStorage a;
  __shared__ Reduce::TempStorage b;
  float v = x[threadIdx.x], s;
  Scan(a).InclusiveSum(v, s);
  y[threadIdx.x] = s;
  float r = Reduce(b).Reduce(v, [](float p, float q) { return p > q ? p : q; });
  if (threadIdx.x == 0) *total = r;
}
extern "C" __global__ void block_histogram(const unsigned char *x, unsigned *h) {
  using Hist = cub::BlockHistogram<unsigned char, 128, 4, 256, cub::BLOCK_HISTO_SORT>;
  __shared__ Hist::TempStorage temp;
  __shared__ unsigned bins[256];
  unsigned char v[4];
  for (int i = 0; i < 4; i++) v[i] = x[threadIdx.x * 4 + i];
  Hist(temp).Histogram(v, bins);
  __syncthreads();
  for (int i = threadIdx.x; i < 256; i += 128) h[i] = bins[i];
}
