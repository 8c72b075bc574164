// Trains the decoder that a YAML file describes: the whole of a training program.
//
//   train_decoder examples/configs/moe_tiny.yaml [--set key.path=value]... [--ranks N]
//   mpirun -np 2 train_decoder examples/configs/moe_tiny.yaml
#include <tessera/tessera.hpp>

#include <cstdio>

namespace ts = tessera;

int main(int argc, char** argv) {
  return ts::run(argc, argv, [](ts::World& world, const ts::Config& config) {
    auto model = ts::models::make(config.model, config.moe);  // or any ts::Model of your own
    ts::Engine engine(world, *model, config);                 // partitions, optimizer, groups
    ts::DataLoader data(config, world);
    ts::TrainingCheckpoints checkpoints(config, world, engine, data);

    checkpoints.resume_latest();  // saved by any number of ranks
    while (engine.step() < config.trainer.max_steps) {
      const ts::StepData step = data.next_step();
      engine.begin_step(step.counts());           // ranks agree on the token counts
      for (const ts::MicroBatch& micro : step) {  // gradient accumulation
        engine.backward(model->loss(micro));
      }
      const ts::StepResult result = engine.apply();  // reduce, clip, update, or skip
      if (world.rank() == 0) {
        std::printf("step %lld loss %.4f norm %.3f\n", static_cast<long long>(result.step),
                    result.loss, result.grad_norm);
      }
      checkpoints.save_if_due();
    }
  });
}
