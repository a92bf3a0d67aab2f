// Operators that need a kernel of their own: those that make or move memory, and those for which torch has a kernel on
// GPUs alone. The latter are written with the CPU's operators, over the same memory.
#pragma once

#include <ATen/EmptyTensor.h>
#include <ATen/Functions.h>
#include <ATen/core/grad_mode.h>
#include <c10/core/DefaultDtype.h>

#include "fallback.h"

namespace standin {

using OptionalTensor = std::optional<at::Tensor>;

inline c10::DeviceIndex chosen(const std::optional<at::Device>& device) {
  const auto index = device ? index_of(*device) : current;
  check_index(index);
  return index;
}

// ---- memory

// Makes the given GPU the current one for as long as it lives, for the allocator looks there.
class On {
 public:
  explicit On(c10::DeviceIndex device) : before_(current) { current = device; }
  ~On() { current = before_; }

 private:
  c10::DeviceIndex before_;
};

constexpr c10::DispatchKeySet kOnGpu(c10::DispatchKey::CUDA);

inline at::Tensor empty(at::SymIntArrayRef size, std::optional<at::ScalarType> dtype, std::optional<at::Layout>,
                        std::optional<at::Device> device, std::optional<bool>,
                        std::optional<at::MemoryFormat> format) {
  On on(chosen(device));
  return at::detail::empty_generic(C10_AS_INTARRAYREF_SLOW(size), &device_allocator, kOnGpu,
                                   dtype.value_or(c10::get_default_dtype_as_scalartype()), format);
}

inline at::Tensor empty_strided(at::SymIntArrayRef size, at::SymIntArrayRef stride, std::optional<at::ScalarType> dtype,
                                std::optional<at::Layout>, std::optional<at::Device> device, std::optional<bool>) {
  On on(chosen(device));
  return at::detail::empty_strided_generic(C10_AS_INTARRAYREF_SLOW(size), C10_AS_INTARRAYREF_SLOW(stride),
                                           &device_allocator, kOnGpu,
                                           dtype.value_or(c10::get_default_dtype_as_scalartype()));
}

inline at::Tensor& copy(at::Tensor& self, const at::Tensor& source, bool) {
  at::AutoDispatchBelowADInplaceOrView below;
  as_cpu(self).copy_(as_cpu(source));
  return self;
}

inline at::Tensor to_copy(const at::Tensor& self, std::optional<at::ScalarType> dtype, std::optional<at::Layout>,
                          std::optional<at::Device> device, std::optional<bool>, bool,
                          std::optional<at::MemoryFormat> format) {
  const auto target = device.value_or(self.device());
  const auto copied = at::_to_copy(as_cpu(self), dtype.value_or(self.scalar_type()), at::kStrided,
                                   target.is_cuda() ? at::Device(at::kCPU) : target, false, false, format);
  return target.is_cuda() ? as_gpu(copied, chosen(target)) : copied;
}

inline at::Tensor& set_storage_at(at::Tensor& self, at::Storage source, c10::SymInt offset, c10::SymIntArrayRef size,
                                  c10::SymIntArrayRef stride) {
  auto* impl = self.unsafeGetTensorImpl();
  impl->set_storage_keep_dtype(std::move(source));
  impl->set_storage_offset(offset.expect_int());
  const auto sizes = C10_AS_INTARRAYREF_SLOW(size);
  const auto strides = C10_AS_INTARRAYREF_SLOW(stride);
  if (strides.size() == sizes.size()) {
    impl->set_sizes_and_strides(sizes, strides);
  } else {
    impl->set_sizes_contiguous(sizes);
  }
  return self;
}

inline at::Tensor& set_storage(at::Tensor& self, at::Storage source) {
  const auto items = static_cast<int64_t>(source.nbytes() / self.dtype().itemsize());
  const std::array<c10::SymInt, 1> sizes{c10::SymInt(items)};
  return set_storage_at(self, std::move(source), c10::SymInt(0), sizes, {});
}

inline at::Tensor& set_tensor(at::Tensor& self, const at::Tensor& source) {
  auto* impl = self.unsafeGetTensorImpl();
  impl->set_storage_keep_dtype(source.storage());
  impl->set_storage_offset(source.storage_offset());
  impl->set_sizes_and_strides(source.sizes(), source.strides());
  return self;
}

inline at::Tensor& set_nothing(at::Tensor& self) {
  c10::Storage storage(c10::Storage::use_byte_size_t(), 0, device_allocator.on(index_of(self.device()), 0),
                       &device_allocator, true);
  return set_storage(self, std::move(storage));
}

inline void record_stream(at::Tensor&, at::Stream) {}

// UntypedStorage.resize_, which a CPU build of torch has for the CPU alone.
inline void resize_storage(const at::Tensor& holder, int64_t bytes) {
  auto* storage = holder.storage().unsafeGetStorageImpl();
  auto fresh = device_allocator.on(holder.device().index(), bytes);
  const auto kept = std::min<size_t>(bytes, storage->nbytes());
  if (kept) memcpy(fresh.get(), storage->data(), kept);
  storage->set_data_ptr_noswap(std::move(fresh));
  storage->set_nbytes(bytes);
}

inline at::Tensor storage_on(const at::Tensor& bytes, int64_t device) {
  check_index(static_cast<c10::DeviceIndex>(device));
  return as_gpu(as_cpu(bytes).clone(), static_cast<c10::DeviceIndex>(device));
}

// ---- choices that torch makes by what a GPU has

inline int64_t plain_attention(const at::Tensor&, const at::Tensor&, const at::Tensor&, const OptionalTensor&, double,
                               bool, std::optional<double>, bool) {
  return 0;  // math: the fused kernels of a GPU have no counterpart on the CPU
}

inline bool plain_ctc_loss(const at::Tensor&, const at::Tensor&, at::IntArrayRef, at::IntArrayRef, int64_t) { return false; }
inline bool plain_ctc_loss_of_tensors(const at::Tensor&, const at::Tensor&, const at::Tensor&, const at::Tensor&,
                                      int64_t) {
  return false;
}

inline std::tuple<at::Tensor, at::Tensor> dropout(const at::Tensor& input, double p, std::optional<bool> train) {
  const auto x = as_cpu(input);
  const auto device = index_of(input.device());
  if (!train.value_or(true) || p == 0) return {as_gpu(x.clone(), device), as_gpu(at::ones_like(x, at::kBool), device)};
  auto generator = static_cast<DeviceGenerator*>(default_generator(device).unsafeGetGeneratorImpl())->drawn();
  const auto mask = at::empty_like(x, x.options().dtype(at::kBool)).bernoulli_(1 - p, generator);
  return {as_gpu(p == 1 ? at::zeros_like(x) : x.mul(mask).mul_(1.0 / (1.0 - p)), device), as_gpu(mask, device)};
}

// ---- recurrent cells, which torch fuses on GPUs

inline at::Tensor or_nothing(const OptionalTensor& tensor) { return tensor ? as_cpu(*tensor) : at::Tensor(); }

inline at::Tensor gates_of(const at::Tensor& input, const at::Tensor& hidden, const OptionalTensor& input_bias,
                           const OptionalTensor& hidden_bias) {
  auto gates = as_cpu(input) + as_cpu(hidden);
  if (or_nothing(input_bias).defined()) gates = gates + as_cpu(*input_bias) + as_cpu(*hidden_bias);
  return gates;
}

inline std::tuple<at::Tensor, at::Tensor, at::Tensor> lstm_cell(
    const at::Tensor& input, const at::Tensor& hidden, const at::Tensor& cell, const OptionalTensor& input_bias,
    const OptionalTensor& hidden_bias) {
  const auto device = index_of(input.device());
  const auto parts = gates_of(input, hidden, input_bias, hidden_bias).chunk(4, 1);
  const auto in = parts[0].sigmoid(), forget = parts[1].sigmoid(), fresh = parts[2].tanh(), out = parts[3].sigmoid();
  const auto next = forget * as_cpu(cell) + in * fresh;
  return {as_gpu(out * next.tanh(), device), as_gpu(next, device),
          as_gpu(at::cat({in, forget, fresh, out}, 1), device)};
}

inline std::tuple<at::Tensor, at::Tensor, at::Tensor> lstm_cell_backward(
    const OptionalTensor& grad_hidden, const OptionalTensor& grad_cell, const at::Tensor& cell,
    const at::Tensor& next_cell, const at::Tensor& workspace, bool has_bias) {
  const auto device = index_of(cell.device());
  const auto before = as_cpu(cell), after = as_cpu(next_cell).tanh();
  const auto parts = as_cpu(workspace).chunk(4, 1);
  const auto &in = parts[0], &forget = parts[1], &fresh = parts[2], &out = parts[3];
  const auto gh = or_nothing(grad_hidden).defined() ? as_cpu(*grad_hidden) : at::zeros_like(before);
  auto gc = gh * out * (1 - after * after);
  if (or_nothing(grad_cell).defined()) gc = gc + as_cpu(*grad_cell);
  const auto gates = at::cat({gc * fresh * in * (1 - in), gc * before * forget * (1 - forget),
                              gc * in * (1 - fresh * fresh), gh * after * out * (1 - out)}, 1);
  return {as_gpu(gates, device), as_gpu(gc * forget, device), has_bias ? as_gpu(gates.sum(0), device) : at::Tensor()};
}

inline std::tuple<at::Tensor, at::Tensor> gru_cell(const at::Tensor& input, const at::Tensor& hidden,
                                                   const at::Tensor& state, const OptionalTensor& input_bias,
                                                   const OptionalTensor& hidden_bias) {
  const auto device = index_of(input.device());
  auto from_input = as_cpu(input), from_hidden = as_cpu(hidden);
  if (or_nothing(input_bias).defined()) {
    from_input = from_input + as_cpu(*input_bias);
    from_hidden = from_hidden + as_cpu(*hidden_bias);
  }
  const auto i = from_input.chunk(3, 1), h = from_hidden.chunk(3, 1);
  const auto reset = (i[0] + h[0]).sigmoid(), update = (i[1] + h[1]).sigmoid(), fresh = (i[2] + reset * h[2]).tanh();
  const auto before = as_cpu(state);
  return {as_gpu(fresh + update * (before - fresh), device),
          as_gpu(at::cat({reset, update, fresh, before, h[2]}, 1), device)};
}

inline std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor, at::Tensor> gru_cell_backward(
    const at::Tensor& grad, const at::Tensor& workspace, bool has_bias) {
  const auto device = index_of(grad.device());
  const auto g = as_cpu(grad);
  const auto parts = as_cpu(workspace).chunk(5, 1);
  const auto &reset = parts[0], &update = parts[1], &fresh = parts[2], &before = parts[3], &hidden = parts[4];
  const auto of_fresh = g * (1 - update) * (1 - fresh * fresh);
  const auto of_update = g * (before - fresh) * update * (1 - update);
  const auto of_reset = of_fresh * hidden * reset * (1 - reset);
  const auto to_input = at::cat({of_reset, of_update, of_fresh}, 1);
  const auto to_hidden = at::cat({of_reset, of_update, of_fresh * reset}, 1);
  return {as_gpu(to_input, device), as_gpu(to_hidden, device), as_gpu(g * update, device),
          has_bias ? as_gpu(to_input.sum(0), device) : at::Tensor(),
          has_bias ? as_gpu(to_hidden.sum(0), device) : at::Tensor()};
}

// ---- SyncBatchNorm's steps, which torch has on GPUs alone

inline at::Tensor per_channel(const at::Tensor& values, const at::Tensor& like) {
  std::vector<int64_t> shape(like.dim(), 1);
  shape[1] = values.numel();
  return values.reshape(shape);
}

inline std::vector<int64_t> all_but_channels(const at::Tensor& input) {
  std::vector<int64_t> dims;
  for (int64_t dim = 0; dim < input.dim(); dim++)
    if (dim != 1) dims.push_back(dim);
  return dims;
}

inline std::tuple<at::Tensor, at::Tensor> batch_norm_stats(const at::Tensor& input, double eps) {
  const auto device = index_of(input.device());
  const bool is_half = input.scalar_type() == at::kHalf || input.scalar_type() == at::kBFloat16;
  const auto x = as_cpu(input).to(is_half ? at::kFloat : input.scalar_type());
  const auto dims = all_but_channels(x);
  const auto mean = x.mean(dims);
  const auto variance = (x - per_channel(mean, x)).square().mean(dims);
  return {as_gpu(mean, device), as_gpu((variance + eps).rsqrt(), device)};
}

inline std::tuple<at::Tensor, at::Tensor> batch_norm_gather_stats_with_counts(
    const at::Tensor& input, const at::Tensor& means, const at::Tensor& inverse_stds, const OptionalTensor& running_mean,
    const OptionalTensor& running_variance, double momentum, double eps, const at::Tensor& counts) {
  const auto device = index_of(input.device());
  const auto n = as_cpu(counts).to(as_cpu(means).scalar_type()).reshape({-1, 1});
  const auto all = n.sum();
  const auto m = as_cpu(means);
  const auto mean = (m * n).sum(0) / all;
  const auto variances = as_cpu(inverse_stds).square().reciprocal() - eps;
  const auto variance = ((variances + (m - mean).square()) * n).sum(0) / all;
  if (or_nothing(running_mean).defined())
    as_cpu(*running_mean).mul_(1 - momentum).add_(mean.to(running_mean->scalar_type()), momentum);
  if (or_nothing(running_variance).defined())
    as_cpu(*running_variance).mul_(1 - momentum).add_((variance * all / (all - 1)).to(running_variance->scalar_type()), momentum);
  return {as_gpu(mean, device), as_gpu((variance + eps).rsqrt(), device)};
}

inline at::Tensor batch_norm_elemt(const at::Tensor& input, const OptionalTensor& weight, const OptionalTensor& bias,
                                   const at::Tensor& mean, const at::Tensor& inverse_std, double) {
  const auto x = as_cpu(input);
  auto out = (x - per_channel(as_cpu(mean), x)) * per_channel(as_cpu(inverse_std), x);
  if (or_nothing(weight).defined()) out = out * per_channel(as_cpu(*weight), x);
  if (or_nothing(bias).defined()) out = out + per_channel(as_cpu(*bias), x);
  return as_gpu(out.to(x.scalar_type()), index_of(input.device()));
}

inline std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor> batch_norm_backward_reduce(
    const at::Tensor& grad, const at::Tensor& input, const at::Tensor& mean, const at::Tensor& inverse_std,
    const OptionalTensor& weight, bool input_needed, bool weight_needed, bool bias_needed) {
  const auto device = index_of(input.device());
  const auto x = as_cpu(input), g = as_cpu(grad);
  const auto dims = all_but_channels(x);
  const auto sum = g.sum(dims);
  const auto sum_of_products = (g * (x - per_channel(as_cpu(mean), x))).sum(dims);
  const auto to_weight = sum_of_products * as_cpu(inverse_std);
  return {input_needed ? as_gpu(sum, device) : at::Tensor(), input_needed ? as_gpu(sum_of_products, device) : at::Tensor(),
          weight_needed && or_nothing(weight).defined() ? as_gpu(to_weight.to(weight->scalar_type()), device) : at::Tensor(),
          bias_needed && or_nothing(weight).defined() ? as_gpu(sum.clone().to(weight->scalar_type()), device) : at::Tensor()};
}

inline at::Tensor batch_norm_backward_elemt(const at::Tensor& grad, const at::Tensor& input, const at::Tensor& mean,
                                            const at::Tensor& inverse_std, const OptionalTensor& weight,
                                            const at::Tensor& sum, const at::Tensor& sum_of_products,
                                            const at::Tensor& counts) {
  const auto x = as_cpu(input), g = as_cpu(grad), inverse = as_cpu(inverse_std);
  const auto all = as_cpu(counts).sum().to(inverse.scalar_type());
  const auto mean_grad = as_cpu(sum) / all;
  const auto slope = as_cpu(sum_of_products) / all * inverse * inverse;
  auto scale = inverse;
  if (or_nothing(weight).defined()) scale = scale * as_cpu(*weight);
  const auto out = (g - per_channel(mean_grad, x) - (x - per_channel(as_cpu(mean), x)) * per_channel(slope, x)) *
                   per_channel(scale, x);
  return as_gpu(out.to(x.scalar_type()), index_of(input.device()));
}

}  // namespace standin
