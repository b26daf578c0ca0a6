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
// Every thread grows a list, and another launch adds it up and frees it.
struct Node { Node *next; int value; };
extern "C" __global__ void grow(Node **heads, int count) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  Node *head = nullptr;
  for (int k = 0; k < count + i % 3; k++) {
    Node *n = (Node *)malloc(sizeof(Node));
    if (!n) break;
    *n = Node{head, i + k};
    head = n;
  }
  heads[i] = head;
}
extern "C" __global__ void fell(Node **heads, int *sums) {
  int i = blockIdx.x * blockDim.x + threadIdx.x, sum = 0;
  for (Node *n = heads[i]; n;) { Node *next = n->next; sum += n->value; free(n); n = next; }
  int *twice = new int[2];
  twice[0] = twice[1] = sum;
  sums[i] = twice[0] + twice[1];
  delete[] twice;
}
