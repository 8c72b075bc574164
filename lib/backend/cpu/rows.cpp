#include "kernels/rows.hpp"

#include "backend/cpu/cpu_operators.hpp"
#include "backend/cpu/dispatch.hpp"
#include "backend/cpu/launch.hpp"

namespace tessera::cpu {

/// cos and sin [time, half] of the rotary embedding.
struct RopeAngles {
  std::int64_t time;
  std::int64_t half;
  double theta;
  std::vector<float> cosine;
  std::vector<float> sine;
};

CpuOperators::CpuOperators() = default;
CpuOperators::~CpuOperators() = default;

void CpuOperators::add_bias(Stream& stream, const Tensor& data, const Tensor& bias) {
  const std::int64_t columns = bias.elements();
  check_tensor(bias, columns, data.dtype(), "bias");
  const std::int64_t rows = rows_of(data, columns);
  stream.enqueue([=] {
    dispatch_float(data.dtype(), [&]<typename T>() {
      run_rows(data.device(), rows, kernels::AddBias<T>{data.data<T>(), bias.data<T>(), columns});
    });
  });
}

void CpuOperators::column_sum(Stream& stream, const Tensor& input, const Tensor& output,
                              bool accumulate) {
  const std::int64_t columns = output.elements();
  check_tensor(output, columns, DType::kF32, "output");
  const std::int64_t rows = rows_of(input, columns);
  stream.enqueue([=] {
    dispatch(input.dtype(), accumulate, [&]<typename T, kernels::Write W>() {
      run_column_sums(input.device(), rows,
                      kernels::ColumnSum<T, W>{input.data<T>(), output.data<float>(), columns});
    });
  });
}

void CpuOperators::embedding(Stream& stream, const Tensor& tokens, const Tensor& table,
                             const Tensor& output) {
  const std::int64_t columns = table.size(-1);
  const std::int64_t rows = tokens.elements();
  check_tensor(tokens, rows, DType::kI32, "tokens");
  check_tensor(output, rows * columns, table.dtype(), "output");
  stream.enqueue([=] {
    dispatch_float(table.dtype(), [&]<typename T>() {
      run_rows(table.device(), rows,
               kernels::GatherRows<T>{table.data<T>(), tokens.data<std::int32_t>(),
                                      output.data<T>(), columns});
    });
  });
}

void CpuOperators::embedding_backward(Stream& stream, const Tensor& tokens,
                                      const Tensor& grad_output, const Tensor& grad_table,
                                      bool accumulate) {
  const std::int64_t columns = grad_table.size(-1);
  const std::int64_t rows = tokens.elements();
  check_tensor(tokens, rows, DType::kI32, "tokens");
  check_tensor(grad_output, rows * columns, grad_output.dtype(), "grad_output");
  check_tensor(grad_table, grad_table.elements(), DType::kF32, "grad_table");
  if (!accumulate) fill_zero(stream, grad_table);
  stream.enqueue([=] {
    dispatch_float(grad_output.dtype(), [&]<typename T>() {
      run_column_scan(
          grad_table.device(), rows,
          kernels::EmbeddingBackward<T>{tokens.data<std::int32_t>(), grad_output.data<T>(),
                                        grad_table.data<float>(), columns});
    });
  });
}

void CpuOperators::add_positions(Stream& stream, const Tensor& input, const Tensor& table,
                                 const Tensor& output) {
  check_tensor(input, output.elements(), output.dtype(), "input");
  check_tensor(table, table.elements(), output.dtype(), "table");
  TESSERA_CHECK(input.shape().rank() == 3 && input.size(2) == table.size(-1) &&
                    input.size(1) <= table.size(0),
                "positions {} for {}", table.shape().to_string(), input.shape().to_string());
  stream.enqueue([=] {
    dispatch_float(output.dtype(), [&]<typename T>() {
      run_rows(output.device(), input.size(0) * input.size(1),
               kernels::AddPositions<T>{input.data<T>(), table.data<T>(), output.data<T>(),
                                        input.size(2), input.size(1)});
    });
  });
}

void CpuOperators::add_positions_backward(Stream& stream, const Tensor& grad_output,
                                          const Tensor& grad_table, bool accumulate) {
  check_tensor(grad_table, grad_table.elements(), DType::kF32, "grad_table");
  TESSERA_CHECK(grad_output.shape().rank() == 3 && grad_output.size(2) == grad_table.size(-1) &&
                    grad_output.size(1) <= grad_table.size(0),
                "positions {} for {}", grad_table.shape().to_string(),
                grad_output.shape().to_string());
  const std::int64_t columns = grad_output.size(1) * grad_output.size(2);
  if (!accumulate) fill_zero(stream, grad_table);
  stream.enqueue([=] {
    dispatch(grad_output.dtype(), accumulate, [&]<typename T, kernels::Write W>() {
      run_column_sums(
          grad_output.device(), grad_output.size(0),
          kernels::ColumnSum<T, W>{grad_output.data<T>(), grad_table.data<float>(), columns});
    });
  });
}

std::shared_ptr<const RopeAngles> CpuOperators::rope_angles(std::int64_t time, std::int64_t half,
                                                            double theta) {
  const std::lock_guard lock(rope_mutex_);
  const auto& last = rope_angles_;
  // Longer tables serve shorter times: rows do not depend on their number.
  if (last && last->time >= time && last->half == half && last->theta == theta) return last;
  auto angles = std::make_shared<RopeAngles>();
  angles->time = time;
  angles->half = half;
  angles->theta = theta;
  angles->cosine.resize(static_cast<std::size_t>(time * half));
  angles->sine.resize(static_cast<std::size_t>(time * half));
  const kernels::RopeTable table{angles->cosine.data(), angles->sine.data(), half,
                                 static_cast<float>(theta)};
  for (std::int64_t t = 0; t < time; ++t) {
    for (std::int64_t i = 0; i < half; ++i) table.apply(t, i, nullptr);
  }
  rope_angles_ = angles;
  return angles;
}

void CpuOperators::rope(Stream& stream, const Tensor& input, double theta, bool inverse,
                        const Tensor& output, bool accumulate) {
  check_tensor(input, output.elements(), output.dtype(), "input");
  TESSERA_CHECK(input.shape().rank() == 4 && input.size(3) % 2 == 0, "rope of {}",
                input.shape().to_string());
  stream.enqueue([=, this] {
    const auto angles = rope_angles(input.size(1), input.size(3) / 2, theta);
    dispatch(output.dtype(), accumulate, [&]<typename T, kernels::Write W>() {
      run_rows(output.device(), input.size(0) * input.size(1) * input.size(2),
               kernels::Rope<T, W>{input.data<T>(), angles->cosine.data(), angles->sine.data(),
                                   output.data<T>(), input.size(3) / 2, input.size(2),
                                   input.size(1), inverse ? -1.0f : 1.0f});
    });
  });
}

}  // namespace tessera::cpu

namespace tessera::kernels {

Operators& cpu_operators() {
  static cpu::CpuOperators table;
  return table;
}

}  // namespace tessera::kernels
