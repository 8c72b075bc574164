// Start here: everything a training program needs.
//
//   run.hpp                    from main() to one call per rank
//   options.hpp                what a YAML file can say, as structs
//   world.hpp, comm.hpp        ranks, and how they talk
//   nn.hpp, ops.hpp, models.hpp, moe.hpp    modules and operators; models that are ready
//   engine.hpp                 ZeRO: partitions a model over ranks and steps its optimizer
//   data.hpp                   token files dealt to ranks
//   training_checkpoints.hpp   save and resume; checkpoint.hpp for state of your own
//   tensor.hpp, device.hpp, stream.hpp, autograd.hpp   what the rest is made of
#pragma once

#include <tessera/autograd.hpp>
#include <tessera/checkpoint.hpp>
#include <tessera/comm.hpp>
#include <tessera/data.hpp>
#include <tessera/device.hpp>
#include <tessera/dtype.hpp>
#include <tessera/engine.hpp>
#include <tessera/error.hpp>
#include <tessera/log.hpp>
#include <tessera/models.hpp>
#include <tessera/moe.hpp>
#include <tessera/nn.hpp>
#include <tessera/ops.hpp>
#include <tessera/options.hpp>
#include <tessera/run.hpp>
#include <tessera/stream.hpp>
#include <tessera/tensor.hpp>
#include <tessera/training_checkpoints.hpp>
#include <tessera/version.hpp>
#include <tessera/world.hpp>
