// Marks functions that are compiled for the host and, under a GPU compiler, for the device too.
// The one file that asks which compiler is at work.
#pragma once

#if defined(__CUDACC__) || defined(__HIPCC__)
#define TESSERA_HOST_DEVICE __host__ __device__
#else
#define TESSERA_HOST_DEVICE
#endif
