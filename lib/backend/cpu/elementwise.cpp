#include "kernels/elementwise.hpp"

#include <cstring>

#include "backend/cpu/cpu_operators.hpp"
#include "backend/cpu/dispatch.hpp"
#include "backend/cpu/launch.hpp"

namespace tessera::cpu {

namespace {

/// Checks that `other` has the elements and the type of `tensor`.
void check_like(const Tensor& other, const Tensor& tensor, const char* name) {
  check_tensor(other, tensor.elements(), tensor.dtype(), name);
}

}  // namespace

void CpuOperators::fill(Stream& stream, const Tensor& output, float value) {
  stream.enqueue([=] {
    dispatch_float(output.dtype(), [&]<typename T>() {
      run_elements(output.device(), output.elements(),
                   kernels::Fill<T>{output.data<T>(), static_cast<T>(value)});
    });
  });
}

void CpuOperators::fill_zero(Stream& stream, const Tensor& output) {
  stream.enqueue([=] {
    if (output.bytes() > 0) std::memset(output.raw_data(), 0, output.bytes());
  });
}

void CpuOperators::copy(Stream& stream, const Tensor& input, const Tensor& output) {
  TESSERA_CHECK(input.elements() == output.elements(), "copy of {} to {}",
                input.shape().to_string(), output.shape().to_string());
  stream.enqueue([=] {
    if (input.dtype() == output.dtype()) {
      if (output.bytes() > 0) std::memmove(output.raw_data(), input.raw_data(), output.bytes());
      return;
    }
    dispatch_float(input.dtype(), [&]<typename In>() {
      dispatch_float(output.dtype(), [&]<typename Out>() {
        run_elements(output.device(), output.elements(),
                     kernels::Convert<In, Out>{input.data<In>(), output.data<Out>()});
      });
    });
  });
}

void CpuOperators::add_to(Stream& stream, const Tensor& input, const Tensor& output) {
  TESSERA_CHECK(input.elements() == output.elements(), "sum of {} and {}",
                input.shape().to_string(), output.shape().to_string());
  stream.enqueue([=] {
    dispatch_float(input.dtype(), [&]<typename In>() {
      dispatch_float(output.dtype(), [&]<typename Out>() {
        run_elements(output.device(), output.elements(),
                     kernels::AddTo<In, Out>{input.data<In>(), output.data<Out>()});
      });
    });
  });
}

void CpuOperators::add(Stream& stream, const Tensor& a, const Tensor& b, const Tensor& output) {
  check_like(a, output, "a");
  check_like(b, output, "b");
  stream.enqueue([=] {
    dispatch_float(output.dtype(), [&]<typename T>() {
      run_elements(output.device(), output.elements(),
                   kernels::Add<T>{a.data<T>(), b.data<T>(), output.data<T>()});
    });
  });
}

void CpuOperators::scale(Stream& stream, const Tensor& data, float factor) {
  stream.enqueue([=] {
    dispatch_float(data.dtype(), [&]<typename T>() {
      run_elements(data.device(), data.elements(), kernels::Scale<T>{data.data<T>(), factor});
    });
  });
}

void CpuOperators::swiglu(Stream& stream, const Tensor& gate, const Tensor& up,
                          const Tensor& output) {
  check_like(gate, output, "gate");
  check_like(up, output, "up");
  stream.enqueue([=] {
    dispatch_float(output.dtype(), [&]<typename T>() {
      run_elements(output.device(), output.elements(),
                   kernels::Swiglu<T>{gate.data<T>(), up.data<T>(), output.data<T>()});
    });
  });
}

void CpuOperators::swiglu_backward(Stream& stream, const Tensor& grad_output, const Tensor& gate,
                                   const Tensor& up, const Tensor& grad_gate, bool accumulate_gate,
                                   const Tensor& grad_up, bool accumulate_up) {
  check_like(gate, grad_output, "gate");
  check_like(up, grad_output, "up");
  check_optional(grad_gate, gate.elements(), gate.dtype(), "grad_gate");
  check_optional(grad_up, up.elements(), up.dtype(), "grad_up");
  stream.enqueue([=] {
    dispatch_float(gate.dtype(), [&]<typename T>() {
      dispatch_write(grad_gate, accumulate_gate, [&]<kernels::Write Gate>() {
        dispatch_write(grad_up, accumulate_up, [&]<kernels::Write Up>() {
          run_elements(gate.device(), gate.elements(),
                       kernels::SwigluBackward<T, Gate, Up>{
                           grad_output.data<T>(), gate.data<T>(), up.data<T>(),
                           data_or_null<T>(grad_gate), data_or_null<T>(grad_up)});
        });
      });
    });
  });
}

void CpuOperators::gelu(Stream& stream, const Tensor& input, const Tensor& output) {
  check_like(input, output, "input");
  stream.enqueue([=] {
    dispatch_float(output.dtype(), [&]<typename T>() {
      run_elements(output.device(), output.elements(),
                   kernels::Gelu<T>{input.data<T>(), output.data<T>()});
    });
  });
}

void CpuOperators::gelu_backward(Stream& stream, const Tensor& grad_output, const Tensor& input,
                                 const Tensor& grad_input, bool accumulate) {
  check_like(input, grad_output, "input");
  check_like(grad_input, grad_output, "grad_input");
  stream.enqueue([=] {
    dispatch(input.dtype(), accumulate, [&]<typename T, kernels::Write W>() {
      run_elements(input.device(), input.elements(),
                   kernels::GeluBackward<T, W>{grad_output.data<T>(), input.data<T>(),
                                               grad_input.data<T>()});
    });
  });
}

void CpuOperators::dropout(Stream& stream, const Tensor& input, const Tensor& sequence_index,
                           float p, std::uint64_t key, const Tensor& output, bool accumulate) {
  check_like(input, output, "input");
  const std::int64_t rows = sequence_index.elements();
  check_tensor(sequence_index, rows, DType::kI64, "sequence_index");
  TESSERA_CHECK(rows == 0 ? output.elements() == 0 : output.elements() % rows == 0,
                "dropout of {} over {} rows", output.shape().to_string(), rows);
  TESSERA_CHECK(p >= 0.0f && p < 1.0f, "dropout probability {}", p);
  const std::int64_t columns = rows == 0 ? 0 : output.elements() / rows;
  stream.enqueue([=] {
    dispatch(output.dtype(), accumulate, [&]<typename T, kernels::Write W>() {
      run_rows(output.device(), rows,
               kernels::Dropout<T, W>{input.data<T>(), sequence_index.data<std::int64_t>(),
                                      output.data<T>(), columns, key, p, 1.0f / (1.0f - p)});
    });
  });
}

}  // namespace tessera::cpu
