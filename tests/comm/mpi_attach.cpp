// A program that owns its MPI: two worlds side by side, the second over every other rank.
#include <tessera/error.hpp>
#include <tessera/world.hpp>

#include <cstdio>

#include "comm/mpi/mpi_header.hpp"

namespace ts = tessera;

int main(int argc, char** argv) {
  int level = 0;
  MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &level);
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  int wrong = 0;
  {
    MPI_Comm world = MPI_COMM_WORLD;
    MPI_Comm half = MPI_COMM_NULL;
    MPI_Comm_split(MPI_COMM_WORLD, rank % 2, rank, &half);
    const auto first = ts::World::attach_mpi(&world, {});
    const auto second = ts::World::attach_mpi(&half, {});
    MPI_Comm_free(&half);
    std::int64_t value[] = {1};
    first->comm().all_reduce_values(value, ts::ReduceOp::kSum);
    wrong += value[0] == first->size() ? 0 : 1;
    second->comm().all_reduce_values(value, ts::ReduceOp::kSum);
    wrong += value[0] == first->size() * second->size() ? 0 : 1;
    // A failure reaches the other ranks of its World and nobody else.
    try {
      if (second->rank() == 0) second->comm().abort(3, "for the test");
      second->comm().barrier_blocking();
      ++wrong;
    } catch (const ts::Error& error) {
      wrong += error.code() == ts::ErrorCode::kData ? 0 : 1;
    }
    first->comm().barrier_blocking();
  }
  int all = 0;
  MPI_Allreduce(&wrong, &all, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
  if (rank == 0 && all == 0) std::puts("attached and left");
  MPI_Finalize();
  return all == 0 ? 0 : 1;
}
