// The same memory under another label: a stand-in GPU's tensor as the CPU's kernels take it, and their results as a GPU's.
#pragma once

#include <ATen/SparseCsrTensorImpl.h>
#include <ATen/SparseTensorImpl.h>
#include <ATen/core/Tensor.h>
#include <c10/core/InferenceMode.h>

#include "device.h"

namespace standin {

// `tracked` says whether the tensor counts its versions, as one does that was made outside inference mode: a view of such
// a tensor does so inside of it, too.
inline at::Tensor over(c10::Storage storage, const at::Tensor& like, c10::DispatchKey key, bool tracked) {
  std::optional<c10::InferenceMode> mode;
  if (tracked == c10::InferenceMode::is_enabled()) mode.emplace(!tracked);
  auto made = at::detail::make_tensor<c10::TensorImpl>(std::move(storage), c10::DispatchKeySet(key), like.dtype());
  auto* impl = made.unsafeGetTensorImpl();
  impl->set_storage_offset(like.storage_offset());
  impl->set_sizes_and_strides(like.sizes(), like.strides());
  if (like.is_conj()) made._set_conj(true);
  if (like.is_neg()) made._set_neg(true);
  return made;
}

inline bool is_sparse(const at::Tensor& tensor) { return tensor.layout() != c10::kStrided; }
inline at::Tensor sparse(const at::Tensor& tensor, c10::DeviceType type, c10::DeviceIndex device);

inline at::Tensor as_cpu(const at::Tensor& tensor, std::optional<bool> tracked = std::nullopt) {
  if (!tensor.defined() || !tensor.is_cuda()) return tensor;
  if (is_sparse(tensor)) return sparse(tensor, c10::kCPU, -1);
  auto* kept = new c10::Storage(tensor.storage());
  c10::DataPtr data(const_cast<void*>(kept->data()), kept, [](void* context) { delete static_cast<c10::Storage*>(context); },
                    c10::Device(c10::kCPU));
  c10::Storage storage(c10::Storage::use_byte_size_t(), kept->nbytes(), std::move(data), c10::GetAllocator(c10::kCPU), true);
  return over(std::move(storage), tensor, c10::DispatchKey::CPU, tracked.value_or(!tensor.is_inference()));
}

// The memory of a CPU's storage as a GPU's, counted against that GPU for as long as it lives.
inline c10::DataPtr counted(const c10::Storage& storage, c10::DeviceIndex device) {
  struct Kept {
    Account account;
    c10::Storage storage;
  };
  auto* kept = new Kept{{device, static_cast<int64_t>(storage.nbytes())}, storage};
  return {const_cast<void*>(storage.data()), kept, [](void* context) { delete static_cast<Kept*>(context); },
          c10::Device(c10::kCUDA, device)};
}

inline at::Tensor as_gpu(const at::Tensor& tensor, c10::DeviceIndex device) {
  if (!tensor.defined() || !tensor.is_cpu()) return tensor;
  if (is_sparse(tensor)) return sparse(tensor, c10::kCUDA, device);
  c10::Storage storage(c10::Storage::use_byte_size_t(), tensor.storage().nbytes(), counted(tensor.storage(), device),
                       &device_allocator, true);
  return over(std::move(storage), tensor, c10::DispatchKey::CUDA, !tensor.is_inference());
}

// ---- sparse tensors: their parts bear the label

inline at::Tensor labelled(const at::Tensor& part, c10::DeviceIndex device) {
  return device < 0 ? as_cpu(part) : as_gpu(part, device);
}

// Gives `to` the parts of `from`, which were computed on the CPU, as those of GPU `device` (-1: as the CPU's).
inline void copy_sparse(const at::Tensor& from, const at::Tensor& to, c10::DeviceIndex device) {
  if (from.layout() == c10::kSparse) {
    auto* source = static_cast<at::SparseTensorImpl*>(from.unsafeGetTensorImpl());
    auto* target = static_cast<at::SparseTensorImpl*>(to.unsafeGetTensorImpl());
    target->raw_resize_(source->sparse_dim(), source->dense_dim(), source->sizes());
    target->set_indices_and_values_unsafe(labelled(source->indices(), device), labelled(source->values(), device));
    target->set_coalesced(source->coalesced());
    return;
  }
  auto* source = static_cast<at::SparseCsrTensorImpl*>(from.unsafeGetTensorImpl());
  auto* target = static_cast<at::SparseCsrTensorImpl*>(to.unsafeGetTensorImpl());
  target->set_member_tensors(labelled(source->compressed_indices(), device), labelled(source->plain_indices(), device),
                             labelled(source->values(), device), source->sizes());
}

inline at::Tensor sparse(const at::Tensor& tensor, c10::DeviceType type, c10::DeviceIndex device) {
  const bool on_cpu = type == c10::kCPU;
  at::Tensor made;
  if (tensor.layout() == c10::kSparse) {
    const auto key = on_cpu ? c10::DispatchKey::SparseCPU : c10::DispatchKey::SparseCUDA;
    made = at::detail::make_tensor<at::SparseTensorImpl>(c10::DispatchKeySet(key), tensor.dtype());
  } else {
    const auto key = on_cpu ? c10::DispatchKey::SparseCsrCPU : c10::DispatchKey::SparseCsrCUDA;
    made = at::detail::make_tensor<at::SparseCsrTensorImpl>(c10::DispatchKeySet(key), c10::Device(type, device),
                                                            tensor.layout(), tensor.dtype());
  }
  copy_sparse(tensor, made, device);
  return made;
}

}  // namespace standin
