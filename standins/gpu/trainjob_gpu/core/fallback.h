// Every operator of a stand-in GPU that has no kernel of its own: the CPU's kernel runs on the same memory.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>
#include <torch/library.h>

#include <string>
#include <unordered_set>

#include "relabel.h"

namespace standin {

// Operators that take some of their tensors from the CPU on a real GPU, too.
inline bool takes_cpu_tensors(const std::string& name) {
  static const std::set<std::string> names{
      "aten::index", "aten::index.Tensor", "aten::index_put", "aten::index_put_", "aten::_index_put_impl_",
      "aten::_unsafe_index", "aten::_unsafe_index_put", "aten::_pack_padded_sequence", "aten::_ctc_loss",
      "aten::_ctc_loss_backward",
      "aten::_local_scalar_dense", "aten::repeat_interleave", "aten::tensor_split"};
  return names.count(name) > 0;
}

class Relabelled {
 public:
  explicit Relabelled(const c10::FunctionSchema& schema) : schema_(schema) {}

  // The operator's arguments, as the CPU's kernel takes them.
  void arguments(c10::Stack* stack) {
    const auto count = schema_.arguments().size();
    const auto begin = stack->size() - count;
    for (size_t number = 0; number < count; number++) {
      name_ = &schema_.arguments()[number].name();
      (*stack)[begin + number] = argument((*stack)[begin + number]);
    }
    if (device_ < 0) device_ = current;
    check_index(device_);
    for (size_t number = 0; number < count; number++) {
      auto& value = (*stack)[begin + number];
      if (value.isNone() && is_generator(schema_.arguments()[number])) value = drawn(default_generator(device_));
    }
  }

  // The kernel's results, as a GPU's; a result that is an argument, or a view of one, keeps that one's memory.
  void results(c10::Stack* stack) {
    write_back();
    const auto count = schema_.returns().size();
    const auto begin = stack->size() - count;
    for (size_t number = 0; number < count; number++) {
      auto& value = (*stack)[begin + number];
      if (value.isTensor()) {
        value = result(value.toTensor());
      } else if (value.isTensorList()) {
        std::vector<at::Tensor> tensors;
        for (const at::Tensor& tensor : value.toTensorList()) tensors.push_back(result(tensor));
        value = c10::IValue(at::TensorList(tensors));
      }
    }
  }

 private:
  static bool is_generator(const c10::Argument& argument) {
    return argument.type()->str().find("Generator") != std::string::npos;
  }
  static at::Generator drawn(const at::Generator& generator) {
    return static_cast<DeviceGenerator*>(generator.unsafeGetGeneratorImpl())->drawn();
  }

  c10::IValue argument(const c10::IValue& value) {
    if (value.isTensor()) return turned(value.toTensor());
    if (value.isTensorList()) {
      std::vector<at::Tensor> tensors;
      for (const at::Tensor& tensor : value.toTensorList()) tensors.push_back(turned(tensor));
      return c10::IValue(at::TensorList(tensors));
    }
    if (value.isOptionalTensorList()) {
      c10::List<std::optional<at::Tensor>> tensors;
      for (const std::optional<at::Tensor>& tensor : value.toOptionalTensorList())
        tensors.push_back(tensor ? std::optional<at::Tensor>(turned(*tensor)) : tensor);
      return tensors;
    }
    if (value.isGenerator()) {
      const auto generator = value.toGenerator();
      TORCH_CHECK(generator.device().is_cuda(), "Expected a 'cuda' device type for generator but found '",
                  generator.device().type() == c10::kCPU ? "cpu" : generator.device().str(), "'");
      if (device_ < 0) device_ = generator.device().index();
      return drawn(generator);
    }
    if (value.isDevice() && value.toDevice().is_cuda()) {
      if (device_ < 0) device_ = index_of(value.toDevice());
      return c10::Device(c10::kCPU);
    }
    return value;
  }

  at::Tensor turned(const at::Tensor& tensor) {
    if (!tensor.defined()) return tensor;
    if (!tensor.is_cuda()) {
      if (tensor.is_cpu() && (tensor.dim() == 0 || takes_cpu_tensors(schema_.name()))) return tensor;
      refuse_mixture(tensor.device());
    }
    if (device_ >= 0 && device_ != tensor.device().index()) refuse_mixture(tensor.device());
    device_ = tensor.device().index();
    auto alias = as_cpu(tensor);
    originals_.emplace_back(alias, tensor);
    return alias;
  }

  [[noreturn]] void refuse_mixture(const c10::Device& other) {
    TORCH_CHECK(false, "Expected all tensors to be on the same device, but found at least two devices, ",
                c10::Device(c10::kCUDA, device_ < 0 ? current : device_), " and ", other,
                "! (when checking argument for argument ", *name_, " in method wrapper_CUDA_",
                schema_.name().substr(schema_.name().find("::") + 2), ")");
  }

  // A kernel that resizes (`out=`, resize_) leaves another storage or other sizes with the alias, and some another sign.
  void write_back() {
    for (auto& [alias, original] : originals_) {
      if (is_sparse(original)) {
        copy_sparse(alias, original, device_);
        continue;
      }
      auto* storage = original.storage().unsafeGetStorageImpl();
      if (alias.storage().data() != storage->data() || alias.storage().nbytes() != storage->nbytes()) {
        storage->set_data_ptr_noswap(counted(alias.storage(), device_));
        storage->set_nbytes(alias.storage().nbytes());
      }
      if (alias.sizes() != original.sizes() || alias.strides() != original.strides() ||
          alias.storage_offset() != original.storage_offset()) {
        original.unsafeGetTensorImpl()->set_storage_offset(alias.storage_offset());
        original.unsafeGetTensorImpl()->set_sizes_and_strides(alias.sizes(), alias.strides());
      }
      // linalg.lu_solve leaves its result conjugated.
      if (alias.is_conj() != original.is_conj()) original._set_conj(alias.is_conj());
      if (alias.is_neg() != original.is_neg()) original._set_neg(alias.is_neg());
    }
  }

  at::Tensor result(const at::Tensor& tensor) {
    if (!tensor.defined()) return tensor;
    for (const auto& [alias, original] : originals_)
      if (alias.is_same(tensor)) return original;
    if (!is_sparse(tensor))
      for (const auto& [alias, original] : originals_)
        if (!is_sparse(alias) && tensor.storage().unsafeGetStorageImpl() == alias.storage().unsafeGetStorageImpl())
          return over(c10::Storage(original.storage()), tensor, c10::DispatchKey::CUDA, !original.is_inference());
    return as_gpu(tensor, device_);
  }

  const c10::FunctionSchema& schema_;
  const std::string* name_ = nullptr;
  c10::DeviceIndex device_ = -1;
  std::vector<std::pair<at::Tensor, at::Tensor>> originals_;
};

// Runs the CPU's kernel in float32 where it has none in 16 bits, which a GPU has. A GPU's kernel rounds its results in
// the same place.
class Widened {
 public:
  Widened(const c10::FunctionSchema& schema, const c10::Stack& stack)
      : schema_(schema), arguments_(stack.end() - schema.arguments().size(), stack.end()) {}

  static bool is_half(const at::Tensor& tensor) {
    return tensor.defined() && (tensor.scalar_type() == at::kHalf || tensor.scalar_type() == at::kBFloat16 ||
                                tensor.scalar_type() == at::kComplexHalf);
  }
  static bool is_needed(const c10::FunctionSchema& schema, const c10::Stack& stack) {
    return std::any_of(stack.end() - schema.arguments().size(), stack.end(), [](const c10::IValue& value) {
      if (value.isTensor()) return is_half(value.toTensor());
      if (!value.isTensorList()) return false;
      const auto tensors = value.toTensorList();
      return std::any_of(tensors.begin(), tensors.end(), [](const at::Tensor& tensor) { return is_half(tensor); });
    });
  }
  // Products of float16, for which the CPU has reference kernels: up to 120 times as slow as those of float32.
  static bool is_slow(const c10::FunctionSchema& schema, const c10::Stack& stack) {
    static const std::unordered_set<std::string> products = {
        "aten::convolution", "aten::convolution_backward", "aten::mm",     "aten::bmm", "aten::addmm",
        "aten::baddbmm",     "aten::addbmm",               "aten::col2im", "aten::linalg_vector_norm"};
    if (!products.count(schema.name())) return false;
    bool is_half = false;
    for (auto value = stack.end() - schema.arguments().size(); value != stack.end(); ++value) {
      if (!value->isTensor() || !value->toTensor().defined()) continue;
      if (value->toTensor().scalar_type() != at::kHalf) return false;  // a mixture, which the CPU's kernel refuses
      is_half = true;
    }
    return is_half;
  }
  static bool is_lacking(const c10::Error& error) {
    const std::string text = error.what_without_backtrace();
    for (const char* words : {"not implemented for 'Half'", "not implemented for 'BFloat16'",
                              "not implemented for 'ComplexHalf'", "FFT doesn't support tensors of type"})
      if (text.find(words) != std::string::npos) return true;
    return false;
  }

  void arguments(c10::Stack* stack) {
    for (size_t number = 0; number < arguments_.size(); number++) {
      const auto* alias_info = schema_.arguments()[number].alias_info();
      is_written_ = alias_info && alias_info->isWrite();
      stack->push_back(each(arguments_[number], [this](const at::Tensor& tensor) { return wide(tensor); }));
      const auto& name = schema_.arguments()[number].name();
      keeps_float_ |= name.find("dtype") != std::string::npos && !arguments_[number].isNone();
    }
  }
  void results(c10::Stack* stack) {
    for (auto& pair : written_) {
      if (pair.narrow.sizes() != pair.wide.sizes()) pair.narrow.resize_(pair.wide.sizes());
      pair.narrow.copy_(pair.wide);
    }
    const auto count = schema_.returns().size();
    for (auto value = stack->end() - count; value != stack->end(); ++value)
      *value = each(*value, [this](const at::Tensor& tensor) { return narrow(tensor); });
  }

 private:
  struct Pair {
    at::Tensor wide, narrow;
  };

  template <class Change>
  static c10::IValue each(const c10::IValue& value, const Change& change) {
    if (value.isTensor()) return change(value.toTensor());
    if (!value.isTensorList()) return value;
    std::vector<at::Tensor> tensors;
    for (const at::Tensor& tensor : value.toTensorList()) tensors.push_back(change(tensor));
    return c10::IValue(at::TensorList(tensors));
  }
  at::Tensor wide(const at::Tensor& tensor) {
    if (!is_half(tensor)) {
      keeps_float_ |= tensor.defined() && tensor.is_floating_point() && tensor.dim() > 0;
      return tensor;
    }
    half_ = tensor.scalar_type() == at::kBFloat16 ? at::kBFloat16 : at::kHalf;
    const auto made = tensor.to(tensor.is_complex() ? at::kComplexFloat : at::kFloat);
    if (is_written_) written_.push_back({made, tensor});
    return made;
  }
  at::Tensor narrow(const at::Tensor& tensor) const {
    for (const auto& pair : written_)
      if (pair.wide.is_same(tensor)) return pair.narrow;
    if (!tensor.defined() || keeps_float_) return tensor;
    if (tensor.scalar_type() == at::kComplexFloat && half_ == at::kHalf) return tensor.to(at::kComplexHalf);
    return tensor.scalar_type() == at::kFloat ? tensor.to(half_) : tensor;
  }

  const c10::FunctionSchema& schema_;
  const c10::Stack arguments_;
  std::vector<Pair> written_;
  at::ScalarType half_ = at::kHalf;
  bool is_written_ = false;
  bool keeps_float_ = false;  // results that the operator gives in float32 whatever it is given
};

template <c10::DispatchKey key>
void compute(const c10::OperatorHandle& op, c10::Stack* stack) {
  if (!Widened::is_needed(op.schema(), *stack)) return op.redispatchBoxed(c10::DispatchKeySet(key), stack);
  Widened widened(op.schema(), *stack);
  const auto others = stack->size() - op.schema().arguments().size();
  bool runs_widened = Widened::is_slow(op.schema(), *stack);
  if (!runs_widened) {
    try {
      op.redispatchBoxed(c10::DispatchKeySet(key), stack);
    } catch (const c10::Error& error) {
      if (!Widened::is_lacking(error)) throw;
      runs_widened = true;
    }
  }
  if (runs_widened) {
    at::AutoDispatchBelowADInplaceOrView below;
    stack->resize(others);
    widened.arguments(stack);
    op.redispatchBoxed(c10::DispatchKeySet(key), stack);
    widened.results(stack);
  }
}

template <c10::DispatchKey key>
void run_on(const c10::OperatorHandle& op, c10::Stack* stack) {
  Relabelled relabelled(op.schema());
  relabelled.arguments(stack);
  compute<key>(op, stack);
  relabelled.results(stack);
}
inline constexpr auto& run_on_cpu = run_on<c10::DispatchKey::CPU>;

}  // namespace standin
