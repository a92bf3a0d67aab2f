// Operators that the CPU has, and does otherwise than a GPU.
#pragma once

#include "fallback.h"

namespace standin {

inline c10::IValue& argument_of(const c10::OperatorHandle& op, c10::Stack* stack, const std::string& name) {
  const auto number = op.schema().argumentIndexWithName(name);
  TORCH_INTERNAL_ASSERT(number, op.schema().name(), " has no argument ", name);
  return (*stack)[stack->size() - op.schema().arguments().size() + *number];
}

// A GPU's kernel takes float16 and gives float32 (half_to_float): what autocast asks for.
inline void softmax(const c10::OperatorHandle& op, c10::Stack* stack) {
  auto& is_to_float = argument_of(op, stack, "half_to_float");
  if (is_to_float.toBool()) {
    is_to_float = false;
    auto& self = argument_of(op, stack, "self");
    TORCH_CHECK(self.toTensor().scalar_type() == at::kHalf, "conversion is supported for Half type only");
    self = self.toTensor().to(at::kFloat);
  }
  run_on_cpu(op, stack);
}

inline void softmax_backward(const c10::OperatorHandle& op, c10::Stack* stack) {
  auto& input_dtype = argument_of(op, stack, "input_dtype");
  const auto wanted = input_dtype.toScalarType();
  input_dtype = argument_of(op, stack, "grad_output").toTensor().scalar_type();
  run_on_cpu(op, stack);
  if (stack->back().toTensor().scalar_type() != wanted) stack->back() = stack->back().toTensor().to(wanted);
}

// A GPU's BatchNorm takes weights of 16 bits beside running statistics of 32, as FSDP2's mixed precision leaves them.
inline bool has_narrow_weights(const c10::OperatorHandle& op, c10::Stack* stack) {
  const auto& weight = argument_of(op, stack, "weight");
  const auto& running_mean = argument_of(op, stack, "running_mean");
  return weight.isTensor() && running_mean.isTensor() && Widened::is_half(weight.toTensor()) &&
         !Widened::is_half(running_mean.toTensor()) &&
         argument_of(op, stack, "input").toTensor().scalar_type() == weight.toTensor().scalar_type();
}

inline void batch_norm(const c10::OperatorHandle& op, c10::Stack* stack) {
  if (has_narrow_weights(op, stack))
    for (const char* name : {"weight", "bias"}) {
      auto& value = argument_of(op, stack, name);
      if (value.isTensor()) value = value.toTensor().to(at::kFloat);
    }
  run_on_cpu(op, stack);
}

// Its backward takes them where channels come last, which other kernels compute.
inline void batch_norm_backward(const c10::OperatorHandle& op, c10::Stack* stack) {
  const auto input = argument_of(op, stack, "input").toTensor();
  if (!Widened::is_half(input)) return run_on_cpu(op, stack);
  const auto& weight = argument_of(op, stack, "weight");
  auto of_weights = at::kFloat;
  if (has_narrow_weights(op, stack)) {
    of_weights = weight.toTensor().scalar_type();
    const auto wanted = argument_of(op, stack, "output_mask").toBoolList();
    const bool channels_last = input.is_contiguous(at::MemoryFormat::ChannelsLast) ||
                               input.is_contiguous(at::MemoryFormat::ChannelsLast3d) ||
                               (input.is_contiguous() && input.stride(1) == 1);
    const bool is_reduced = argument_of(op, stack, "train").toBool() || wanted[1] || wanted[2];
    TORCH_CHECK(channels_last || !wanted[0] || !is_reduced, "Expected running_mean to have type ", of_weights,
                " but got ", argument_of(op, stack, "running_mean").toTensor().scalar_type());
  } else if (weight.isTensor() && weight.toTensor().defined()) {
    of_weights = weight.toTensor().scalar_type();
  }
  // The CPU's kernel of 16 bits takes six times as long as that of float32.
  for (auto value = stack->end() - op.schema().arguments().size(); value != stack->end(); ++value)
    if (value->isTensor() && Widened::is_half(value->toTensor())) *value = value->toTensor().to(at::kFloat);
  run_on_cpu(op, stack);
  for (auto value = stack->end() - 3; value != stack->end(); ++value)
    if (value->toTensor().defined())
      *value = value->toTensor().to(value == stack->end() - 3 ? input.scalar_type() : of_weights);
}

// A GPU's norms take weights of the input's type alone; the CPU's also take float32 beside 16 bits.
inline void norm(const c10::OperatorHandle& op, c10::Stack* stack) {
  const auto& weight = argument_of(op, stack, "weight");
  const auto& input = argument_of(op, stack, "input");
  if (weight.isTensor() && weight.toTensor().defined() && Widened::is_half(input.toTensor()))
    TORCH_CHECK(weight.toTensor().scalar_type() == input.toTensor().scalar_type(), "expected scalar type ",
                input.toTensor().scalar_type(), " but found ", weight.toTensor().scalar_type());
  run_on_cpu(op, stack);
}

// The CPU's fused optimizers differ from release to release in what they make of a GradScaler's two tensors, and torch
// 2.13's SGD computes wrongly with those and 16 bits: the gradients are unscaled before, and float32 is computed in.
inline void fused_optimizer(const c10::OperatorHandle& op, c10::Stack* stack) {
  auto& found_inf = argument_of(op, stack, "found_inf");
  auto& grad_scale = argument_of(op, stack, "grad_scale");
  const bool is_left_out = found_inf.isTensor() && found_inf.toTensor().item().toDouble() != 0;
  if (is_left_out) return static_cast<void>(stack->resize(stack->size() - op.schema().arguments().size()));
  Relabelled relabelled(op.schema());
  relabelled.arguments(stack);
  at::AutoDispatchBelowADInplaceOrView below;
  if (grad_scale.isTensor()) {
    const auto scale = grad_scale.toTensor();
    for (const at::Tensor& grad : argument_of(op, stack, "grads").toTensorList())
      grad.copy_(grad.to(Widened::is_half(grad) ? at::kFloat : grad.scalar_type()).div_(scale));
  }
  grad_scale = found_inf = c10::IValue();
  Widened widened(op.schema(), *stack);
  const bool is_wide = Widened::is_needed(op.schema(), *stack);
  if (is_wide) {
    stack->resize(stack->size() - op.schema().arguments().size());
    widened.arguments(stack);
  }
  op.redispatchBoxed(c10::DispatchKeySet(c10::DispatchKey::CPU), stack);
  if (is_wide) widened.results(stack);
  relabelled.results(stack);
}

}  // namespace standin
