//! The functions that cust_raw 0.11.3 declares, except those that [`trampoline`](crate::trampoline) writes out.

/// Calls a macro with all of the names.
#[rustfmt::skip]
macro_rules! for_each_symbol {
    ($callback:ident) => {
        $callback! {
            cuDeviceGet cuDeviceGetCount cuDeviceGetName cuDeviceGetUuid cuDeviceGetUuid_v2 cuDeviceGetLuid
            cuDeviceTotalMem_v2 cuDeviceGetTexture1DLinearMaxWidth cuDeviceGetAttribute
            cuDeviceGetNvSciSyncAttributes cuDeviceSetMemPool cuDeviceGetMemPool cuDeviceGetDefaultMemPool
            cuFlushGPUDirectRDMAWrites cuDeviceGetProperties cuDeviceComputeCapability cuDevicePrimaryCtxRetain
            cuDevicePrimaryCtxRelease_v2 cuDevicePrimaryCtxSetFlags_v2 cuDevicePrimaryCtxGetState
            cuDevicePrimaryCtxReset_v2 cuDeviceGetExecAffinitySupport cuCtxCreate_v2 cuCtxCreate_v3 cuCtxDestroy_v2
            cuCtxPushCurrent_v2 cuCtxPopCurrent_v2 cuCtxSetCurrent cuCtxGetCurrent cuCtxGetDevice cuCtxGetFlags
            cuCtxSynchronize cuCtxSetLimit cuCtxGetLimit cuCtxGetCacheConfig cuCtxSetCacheConfig
            cuCtxGetSharedMemConfig cuCtxSetSharedMemConfig cuCtxGetApiVersion cuCtxGetStreamPriorityRange
            cuCtxResetPersistingL2Cache cuCtxGetExecAffinity cuCtxAttach cuCtxDetach cuModuleLoad cuModuleLoadData
            cuModuleLoadDataEx cuModuleLoadFatBinary cuModuleUnload cuModuleGetFunction cuModuleGetGlobal_v2
            cuModuleGetTexRef cuModuleGetSurfRef cuLinkCreate_v2 cuLinkAddData_v2 cuLinkAddFile_v2 cuLinkComplete
            cuLinkDestroy cuMemGetInfo_v2 cuMemAlloc_v2 cuMemAllocPitch_v2 cuMemFree_v2 cuMemGetAddressRange_v2
            cuMemAllocHost_v2 cuMemFreeHost cuMemHostAlloc cuMemHostGetDevicePointer_v2 cuMemHostGetFlags
            cuMemAllocManaged cuDeviceGetByPCIBusId cuDeviceGetPCIBusId cuIpcGetEventHandle cuIpcOpenEventHandle
            cuIpcGetMemHandle cuIpcOpenMemHandle_v2 cuIpcCloseMemHandle cuMemHostRegister_v2 cuMemHostUnregister
            cuMemcpy cuMemcpyPeer cuMemcpyHtoD_v2 cuMemcpyDtoH_v2 cuMemcpyDtoD_v2 cuMemcpyDtoA_v2 cuMemcpyAtoD_v2
            cuMemcpyHtoA_v2 cuMemcpyAtoH_v2 cuMemcpyAtoA_v2 cuMemcpy2D_v2 cuMemcpy2DUnaligned_v2 cuMemcpy3D_v2
            cuMemcpy3DPeer cuMemcpyAsync cuMemcpyPeerAsync cuMemcpyHtoDAsync_v2 cuMemcpyDtoHAsync_v2
            cuMemcpyDtoDAsync_v2 cuMemcpyHtoAAsync_v2 cuMemcpyAtoHAsync_v2 cuMemcpy2DAsync_v2 cuMemcpy3DAsync_v2
            cuMemcpy3DPeerAsync cuMemsetD8_v2 cuMemsetD16_v2 cuMemsetD32_v2 cuMemsetD2D8_v2 cuMemsetD2D16_v2
            cuMemsetD2D32_v2 cuMemsetD8Async cuMemsetD16Async cuMemsetD32Async cuMemsetD2D8Async cuMemsetD2D16Async
            cuMemsetD2D32Async cuArrayCreate_v2 cuArrayGetDescriptor_v2 cuArrayGetSparseProperties
            cuMipmappedArrayGetSparseProperties cuArrayGetPlane cuArrayDestroy cuArray3DCreate_v2
            cuArray3DGetDescriptor_v2 cuMipmappedArrayCreate cuMipmappedArrayGetLevel cuMipmappedArrayDestroy
            cuMemAddressReserve cuMemAddressFree cuMemCreate cuMemRelease cuMemMap cuMemMapArrayAsync cuMemUnmap
            cuMemSetAccess cuMemGetAccess cuMemExportToShareableHandle cuMemImportFromShareableHandle
            cuMemGetAllocationGranularity cuMemGetAllocationPropertiesFromHandle cuMemRetainAllocationHandle
            cuMemFreeAsync cuMemAllocAsync cuMemPoolTrimTo cuMemPoolSetAttribute cuMemPoolGetAttribute
            cuMemPoolSetAccess cuMemPoolGetAccess cuMemPoolCreate cuMemPoolDestroy cuMemAllocFromPoolAsync
            cuMemPoolExportToShareableHandle cuMemPoolImportFromShareableHandle cuMemPoolExportPointer
            cuMemPoolImportPointer cuPointerGetAttribute cuMemPrefetchAsync cuMemAdvise cuMemRangeGetAttribute
            cuMemRangeGetAttributes cuPointerSetAttribute cuPointerGetAttributes cuStreamCreate
            cuStreamCreateWithPriority cuStreamGetPriority cuStreamGetFlags cuStreamGetCtx cuStreamWaitEvent
            cuStreamAddCallback cuStreamBeginCapture_v2 cuThreadExchangeStreamCaptureMode cuStreamEndCapture
            cuStreamIsCapturing cuStreamGetCaptureInfo cuStreamGetCaptureInfo_v2 cuStreamUpdateCaptureDependencies
            cuStreamAttachMemAsync cuStreamQuery cuStreamSynchronize cuStreamDestroy_v2 cuStreamCopyAttributes
            cuStreamGetAttribute cuStreamSetAttribute cuEventCreate cuEventRecord cuEventRecordWithFlags cuEventQuery
            cuEventSynchronize cuEventDestroy_v2 cuEventElapsedTime cuImportExternalMemory
            cuExternalMemoryGetMappedBuffer cuExternalMemoryGetMappedMipmappedArray cuDestroyExternalMemory
            cuImportExternalSemaphore cuSignalExternalSemaphoresAsync cuWaitExternalSemaphoresAsync
            cuDestroyExternalSemaphore cuStreamWaitValue32 cuStreamWaitValue64 cuStreamWriteValue32
            cuStreamWriteValue64 cuStreamBatchMemOp cuFuncGetAttribute cuFuncSetAttribute cuFuncSetCacheConfig
            cuFuncSetSharedMemConfig cuFuncGetModule cuLaunchKernel cuLaunchCooperativeKernel
            cuLaunchCooperativeKernelMultiDevice cuLaunchHostFunc cuFuncSetBlockShape cuFuncSetSharedSize
            cuParamSetSize cuParamSeti cuParamSetf cuParamSetv cuLaunch cuLaunchGrid cuLaunchGridAsync
            cuParamSetTexRef cuGraphCreate cuGraphAddKernelNode cuGraphKernelNodeGetParams cuGraphKernelNodeSetParams
            cuGraphAddMemcpyNode cuGraphMemcpyNodeGetParams cuGraphMemcpyNodeSetParams cuGraphAddMemsetNode
            cuGraphMemsetNodeGetParams cuGraphMemsetNodeSetParams cuGraphAddHostNode cuGraphHostNodeGetParams
            cuGraphHostNodeSetParams cuGraphAddChildGraphNode cuGraphChildGraphNodeGetGraph cuGraphAddEmptyNode
            cuGraphAddEventRecordNode cuGraphEventRecordNodeGetEvent cuGraphEventRecordNodeSetEvent
            cuGraphAddEventWaitNode cuGraphEventWaitNodeGetEvent cuGraphEventWaitNodeSetEvent
            cuGraphAddExternalSemaphoresSignalNode cuGraphExternalSemaphoresSignalNodeGetParams
            cuGraphExternalSemaphoresSignalNodeSetParams cuGraphAddExternalSemaphoresWaitNode
            cuGraphExternalSemaphoresWaitNodeGetParams cuGraphExternalSemaphoresWaitNodeSetParams
            cuGraphAddMemAllocNode cuGraphMemAllocNodeGetParams cuGraphAddMemFreeNode cuGraphMemFreeNodeGetParams
            cuDeviceGraphMemTrim cuDeviceGetGraphMemAttribute cuDeviceSetGraphMemAttribute cuGraphClone
            cuGraphNodeFindInClone cuGraphNodeGetType cuGraphGetNodes cuGraphGetRootNodes cuGraphGetEdges
            cuGraphNodeGetDependencies cuGraphNodeGetDependentNodes cuGraphAddDependencies cuGraphRemoveDependencies
            cuGraphDestroyNode cuGraphInstantiate_v2 cuGraphInstantiateWithFlags cuGraphExecKernelNodeSetParams
            cuGraphExecMemcpyNodeSetParams cuGraphExecMemsetNodeSetParams cuGraphExecHostNodeSetParams
            cuGraphExecChildGraphNodeSetParams cuGraphExecEventRecordNodeSetEvent cuGraphExecEventWaitNodeSetEvent
            cuGraphExecExternalSemaphoresSignalNodeSetParams cuGraphExecExternalSemaphoresWaitNodeSetParams
            cuGraphUpload cuGraphLaunch cuGraphExecDestroy cuGraphDestroy cuGraphExecUpdate
            cuGraphKernelNodeCopyAttributes cuGraphKernelNodeGetAttribute cuGraphKernelNodeSetAttribute
            cuGraphDebugDotPrint cuUserObjectCreate cuUserObjectRetain cuUserObjectRelease cuGraphRetainUserObject
            cuGraphReleaseUserObject cuOccupancyMaxActiveBlocksPerMultiprocessor
            cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags cuOccupancyMaxPotentialBlockSize
            cuOccupancyMaxPotentialBlockSizeWithFlags cuOccupancyAvailableDynamicSMemPerBlock cuTexRefSetArray
            cuTexRefSetMipmappedArray cuTexRefSetAddress_v2 cuTexRefSetAddress2D_v3 cuTexRefSetFormat
            cuTexRefSetAddressMode cuTexRefSetFilterMode cuTexRefSetMipmapFilterMode cuTexRefSetMipmapLevelBias
            cuTexRefSetMipmapLevelClamp cuTexRefSetMaxAnisotropy cuTexRefSetBorderColor cuTexRefSetFlags
            cuTexRefGetAddress_v2 cuTexRefGetArray cuTexRefGetMipmappedArray cuTexRefGetAddressMode
            cuTexRefGetFilterMode cuTexRefGetFormat cuTexRefGetMipmapFilterMode cuTexRefGetMipmapLevelBias
            cuTexRefGetMipmapLevelClamp cuTexRefGetMaxAnisotropy cuTexRefGetBorderColor cuTexRefGetFlags
            cuTexRefCreate cuTexRefDestroy cuSurfRefSetArray cuSurfRefGetArray cuTexObjectCreate cuTexObjectDestroy
            cuTexObjectGetResourceDesc cuTexObjectGetTextureDesc cuTexObjectGetResourceViewDesc cuSurfObjectCreate
            cuSurfObjectDestroy cuSurfObjectGetResourceDesc cuDeviceCanAccessPeer cuCtxEnablePeerAccess
            cuCtxDisablePeerAccess cuDeviceGetP2PAttribute cuGraphicsUnregisterResource
            cuGraphicsSubResourceGetMappedArray cuGraphicsResourceGetMappedMipmappedArray
            cuGraphicsResourceGetMappedPointer_v2 cuGraphicsResourceSetMapFlags_v2 cuGraphicsMapResources
            cuGraphicsUnmapResources cuGetProcAddress cuGetExportTable cuProfilerInitialize cuProfilerStart
            cuProfilerStop
        }
    };
}
pub(crate) use for_each_symbol;
