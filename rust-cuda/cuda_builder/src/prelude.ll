; Linked into every device crate. Rust cannot name PTX's shared address space: these two do, and once inlined
; the loads and stores made through the pointer become ld.shared and st.shared.
target datalayout = "e-p6:32:32-i64:64-i128:128-i256:256-v16:16-v32:32-n16:32:64"
target triple = "nvptx64-nvidia-cuda"

@__cuda_dynamic_shared = external addrspace(3) global [0 x i8], align 1024

define ptr @__cuda_dyn_smem() alwaysinline nounwind willreturn memory(none) {
  ret ptr addrspacecast (ptr addrspace(3) @__cuda_dynamic_shared to ptr)
}

define i32 @__cuda_dyn_smem_u32() alwaysinline nounwind willreturn memory(none) {
  ret i32 ptrtoint (ptr addrspace(3) @__cuda_dynamic_shared to i32)
}
