// MPI's C interface alone: some MPIs add an old C++ one that needs a library of its own.
#pragma once

#define OMPI_SKIP_MPICXX 1
#define MPICH_SKIP_MPICXX 1
#include <mpi.h>
