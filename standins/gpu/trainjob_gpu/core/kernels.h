// Operators that make or move memory: a stand-in GPU needs kernels of its own for them. All are boxed, for each kernel
// that is not takes the compiler most of a second.
#pragma once

#include <ATen/EmptyTensor.h>
#include <ATen/core/grad_mode.h>
#include <c10/core/DefaultDtype.h>

#include "fallback.h"

namespace standin {

using c10::OperatorHandle;
using c10::Stack;

inline c10::DeviceIndex chosen(const std::optional<at::Device>& device) {
  const auto index = device ? index_of(*device) : current;
  check_index(index);
  return index;
}

// Makes the given GPU the current one for as long as it lives, for the allocator looks there.
class On {
 public:
  explicit On(c10::DeviceIndex device) : before_(current) { current = device; }
  ~On() { current = before_; }

 private:
  c10::DeviceIndex before_;
};

constexpr c10::DispatchKeySet kOnGpu(c10::DispatchKey::CUDA);

// Takes an operator's arguments from the stack.
inline std::vector<c10::IValue> taken(const OperatorHandle& op, Stack* stack) {
  const auto first = stack->end() - op.schema().arguments().size();
  std::vector<c10::IValue> arguments(std::make_move_iterator(first), std::make_move_iterator(stack->end()));
  stack->erase(first, stack->end());
  return arguments;
}

inline at::ScalarType dtype_or_default(const c10::IValue& dtype) {
  return dtype.isNone() ? c10::get_default_dtype_as_scalartype() : dtype.toScalarType();
}

// (SymInt[] size, dtype, layout, device, pin_memory, memory_format)
inline void empty(const OperatorHandle& op, Stack* stack) {
  const auto given = taken(op, stack);
  On on(chosen(given[3].toOptional<at::Device>()));
  stack->emplace_back(at::detail::empty_generic(given[0].toIntVector(), &device_allocator, kOnGpu,
                                                dtype_or_default(given[1]), given[5].toOptional<at::MemoryFormat>()));
}

// (SymInt[] size, SymInt[] stride, dtype, layout, device, pin_memory)
inline void empty_strided(const OperatorHandle& op, Stack* stack) {
  const auto given = taken(op, stack);
  On on(chosen(given[4].toOptional<at::Device>()));
  stack->emplace_back(at::detail::empty_strided_generic(given[0].toIntVector(), given[1].toIntVector(),
                                                        &device_allocator, kOnGpu, dtype_or_default(given[2])));
}

// (Tensor self, Tensor src, non_blocking)
inline void copy(const OperatorHandle& op, Stack* stack) {
  const auto given = taken(op, stack);
  at::AutoDispatchBelowADInplaceOrView below;
  as_cpu(given[0].toTensor()).copy_(as_cpu(given[1].toTensor()));
  stack->push_back(given[0]);
}

// (Tensor self, dtype, layout, device, pin_memory, non_blocking, memory_format): the CPU's own, between two labels.
inline void to_copy(const OperatorHandle& op, Stack* stack) {
  auto given = taken(op, stack);
  const auto self = given[0].toTensor();
  const auto target = given[3].toOptional<at::Device>().value_or(self.device());
  given[0] = as_cpu(self);
  if (given[2].isNone()) given[2] = at::kStrided;
  given[3] = target.is_cuda() ? at::Device(at::kCPU) : target;
  given[4] = false;
  stack->insert(stack->end(), given.begin(), given.end());
  op.callBoxed(stack);
  if (target.is_cuda()) stack->back() = as_gpu(stack->back().toTensor(), chosen(target));
}

inline void set_storage(const at::Tensor& self, at::Storage storage) {
  const auto items = static_cast<int64_t>(storage.nbytes() / self.dtype().itemsize());
  self.unsafeGetTensorImpl()->set_storage_keep_dtype(std::move(storage));
  self.unsafeGetTensorImpl()->set_storage_offset(0);
  self.unsafeGetTensorImpl()->set_sizes_contiguous({items});
}

// set_(Tensor self): nothing; (self, Storage source); (self, Storage source, SymInt offset, SymInt[] size, SymInt[] stride);
// (self, Tensor source)
inline void set(const OperatorHandle& op, Stack* stack) {
  const auto given = taken(op, stack);
  const auto self = given[0].toTensor();
  auto* impl = self.unsafeGetTensorImpl();
  if (given.size() == 1) {
    set_storage(self, {c10::Storage::use_byte_size_t(), 0, device_allocator.on(index_of(self.device()), 0),
                       &device_allocator, true});
  } else if (given[1].isTensor()) {
    const auto source = given[1].toTensor();
    impl->set_storage_keep_dtype(source.storage());
    impl->set_storage_offset(source.storage_offset());
    impl->set_sizes_and_strides(source.sizes(), source.strides());
  } else if (given.size() == 2) {
    set_storage(self, given[1].toStorage());
  } else {
    impl->set_storage_keep_dtype(given[1].toStorage());
    impl->set_storage_offset(given[2].toInt());
    const auto sizes = given[3].toIntVector(), strides = given[4].toIntVector();
    if (strides.size() == sizes.size()) {
      impl->set_sizes_and_strides(sizes, strides);
    } else {
      impl->set_sizes_contiguous(sizes);
    }
  }
  stack->push_back(given[0]);
}

// (Tensor self, Stream s)
inline void record_stream(const OperatorHandle& op, Stack* stack) { taken(op, stack); }

// UntypedStorage.resize_, which a CPU build of torch has for the CPU alone: (Tensor holder, int bytes)
inline void resize_storage(const OperatorHandle& op, Stack* stack) {
  const auto given = taken(op, stack);
  const auto holder = given[0].toTensor();
  const auto bytes = static_cast<size_t>(given[1].toInt());
  auto* storage = holder.storage().unsafeGetStorageImpl();
  auto fresh = device_allocator.on(holder.device().index(), bytes);
  const auto kept = std::min<size_t>(bytes, storage->nbytes());
  if (kept) memcpy(fresh.get(), storage->data(), kept);
  storage->set_data_ptr_noswap(std::move(fresh));
  storage->set_nbytes(bytes);
}

// (Tensor bytes, int device)
inline void storage_on(const OperatorHandle& op, Stack* stack) {
  const auto given = taken(op, stack);
  const auto device = static_cast<c10::DeviceIndex>(given[1].toInt());
  check_index(device);
  stack->emplace_back(as_gpu(as_cpu(given[0].toTensor()).clone(), device));
}

// (int device)
inline void generator(const OperatorHandle& op, Stack* stack) {
  const auto given = taken(op, stack);
  stack->emplace_back(default_generator(static_cast<c10::DeviceIndex>(given[0].toInt())));
}

}  // namespace standin
