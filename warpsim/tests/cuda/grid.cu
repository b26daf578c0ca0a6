// Grids that wait for themselves, and memory that threads allocate.
#include <cooperative_groups.h>
namespace cg = cooperative_groups;
// Each round shifts what the round before left.
extern "C" __global__ void rounds(int *a, int *b, int n, int count) {
  auto grid = cg::this_grid();
  int *from = a, *to = b;
  for (int r = 0; r < count; r++) {
    for (int i = grid.thread_rank(); i < n; i += grid.num_threads()) to[i] = from[(i + 1) % n] + r;
    grid.sync();
    int *t = from; from = to; to = t;
  }
}
// Arrives, does something else, waits; `last` blocks do not come.
extern "C" __global__ void halves(int *part, int *out, int last) {
  auto grid = cg::this_grid();
  if (blockIdx.x + last >= gridDim.x) return;
  if (threadIdx.x == 0) part[blockIdx.x] = blockIdx.x * blockIdx.x;
  auto token = grid.barrier_arrive();
  int before = blockIdx.x;
  grid.barrier_wait(std::move(token));
  if (threadIdx.x == 0) out[blockIdx.x] = part[(blockIdx.x + 1) % gridDim.x] + before;
}
