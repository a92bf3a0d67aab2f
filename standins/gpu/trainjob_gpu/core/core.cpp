// A pretend CUDA device for a CPU build of torch: tensors bear a GPU's label, and the CPU computes. It is loaded before
// torch, which asks for CUDA's hooks once. Only for rehearsals.
#include <ATen/Context.h>
#include <c10/util/Exception.h>

#include "differences.h"
#include "hooks.h"
#include "kernels.h"
#include "leaving.h"
#include "profiler.h"

#define USE_C10D_GLOO
#include <torch/csrc/distributed/c10d/reducer_timer.hpp>

template <c10::BoxedKernel::BoxedKernelFunction* kernel>
torch::CppFunction boxed() {
  return torch::CppFunction::makeFromBoxedFunction<kernel>();
}

TORCH_LIBRARY_IMPL(_, CUDA, m) { m.fallback(boxed<&standin::run_on_cpu>()); }

// torch prefers an operator's composite kernel to a fallback: what has a kernel for the CPU's sparse tensors takes that one.
template <c10::BoxedKernel::BoxedKernelFunction* run>
void impl_all(torch::Library& m, c10::DispatchKey of_cpu) {
  for (const auto& name : c10::Dispatcher::singleton().getRegistrationsForDispatchKey(of_cpu)) {
    if (name.name.rfind("aten::", 0) != 0) continue;
    const auto whole = name.overload_name.empty() ? name.name : name.name + "." + name.overload_name;
    m.impl(whole.c_str(), boxed<run>());
  }
}
TORCH_LIBRARY_IMPL(aten, SparseCUDA, m) {
  impl_all<&standin::run_on<c10::DispatchKey::SparseCPU>>(m, c10::DispatchKey::SparseCPU);
}
TORCH_LIBRARY_IMPL(aten, SparseCsrCUDA, m) {
  impl_all<&standin::run_on<c10::DispatchKey::SparseCsrCPU>>(m, c10::DispatchKey::SparseCsrCPU);
}

TORCH_LIBRARY_IMPL(aten, CUDA, m) {
  m.impl("empty.memory_format", boxed<&standin::empty>());
  m.impl("empty_strided", boxed<&standin::empty_strided>());
  m.impl("copy_", boxed<&standin::copy>());
  m.impl("_to_copy", boxed<&standin::to_copy>());
  for (const char* name : {"set_", "set_.source_Storage", "set_.source_Storage_storage_offset", "set_.source_Tensor"})
    m.impl(name, boxed<&standin::set>());
  m.impl("record_stream", boxed<&standin::record_stream>());
  for (const char* name : {"_softmax", "_softmax.out", "_log_softmax", "_log_softmax.out"})
    m.impl(name, boxed<&standin::softmax>());
  for (const char* name : {"_softmax_backward_data", "_log_softmax_backward_data"})
    m.impl(name, boxed<&standin::softmax_backward>());
  m.impl("native_batch_norm", boxed<&standin::batch_norm>());
  m.impl("native_group_norm", boxed<&standin::norm>());
  m.impl("native_layer_norm", boxed<&standin::norm>());
  m.impl("native_batch_norm_backward", boxed<&standin::batch_norm_backward>());
  for (const char* name : {"_fused_adam_", "_fused_adam_.tensor_lr", "_fused_adamw_", "_fused_adamw_.tensor_lr",
                           "_fused_sgd_", "_fused_sgd_.tensor_lr", "_fused_adagrad_", "_fused_adagrad_.tensor_lr"})
    m.impl(name, boxed<&standin::fused_optimizer>());
  // torch would choose cuDNN's or a kernel of its own for GPUs here, by the label.
  m.impl("convolution", boxed<&standin::run_on_cpu>());
  m.impl("convolution_backward", boxed<&standin::run_on_cpu>());
}

TORCH_LIBRARY(trainjob_gpu, m) {
  m.def("resize_storage(Tensor holder, int bytes) -> ()");
  m.def("storage_on(Tensor bytes, int device) -> Tensor");
  m.def("generator(int device) -> Generator?");
}
TORCH_LIBRARY_IMPL(trainjob_gpu, CUDA, m) { m.impl("resize_storage", boxed<&standin::resize_storage>()); }
TORCH_LIBRARY_IMPL(trainjob_gpu, CompositeExplicitAutograd, m) {
  m.impl("storage_on", boxed<&standin::storage_on>());
  m.impl("generator", boxed<&standin::generator>());
}

static const int allocator_is_set = (c10::SetAllocator(c10::DeviceType::CUDA, &standin::device_allocator), 0);

// DDP's reducer asks for a timer of its device.
namespace c10d {
struct StandInTimer : public Timer {
  explicit StandInTimer(c10::Device) {}
  std::optional<int64_t> measureDifference(Event start, Event end) override {
    const auto from = getTimeRef(start), to = getTimeRef(end);
    if (from == kUnsetTime || to == kUnsetTime) return std::nullopt;
    return to - from;
  }
};
C10_REGISTER_TYPED_CLASS(TimerRegistry, c10::kCUDA, StandInTimer);
}  // namespace c10d

// What Python asks for, by ctypes. An index has been checked before.
extern "C" {
void trainjob_gpu_set_up(int count, int64_t bytes) {
  standin::device_count = std::min(count, standin::kMostDevices);
  standin::bytes_per_device = bytes;
}
void trainjob_gpu_init() {
#if TORCH_AT_LEAST(2, 6)
  at::globalContext().lazyInitDevice(c10::kCUDA);
#else
  at::globalContext().lazyInitCUDA();
#endif
}
void trainjob_gpu_forked() { standin::is_forked = true; }
int trainjob_gpu_current() { return standin::current; }
void trainjob_gpu_use(int index) { standin::current = static_cast<c10::DeviceIndex>(index); }
int64_t trainjob_gpu_stream(int index) { return standin::current_stream[index]; }
void trainjob_gpu_use_stream(int index, int64_t stream) { standin::current_stream[index] = stream; }
void trainjob_gpu_limit(int index, double share) { standin::memory[index].share = share; }
double trainjob_gpu_share(int index) { return standin::memory[index].share; }
void trainjob_gpu_pin(const void* data, size_t bytes) { standin::PinnedAllocator::note(data, bytes); }
void trainjob_gpu_memory(int index, int64_t* figures) {
  const auto& memory = standin::memory[index];
  figures[0] = memory.allocated;
  figures[1] = memory.peak;
  figures[2] = memory.highest;
  figures[3] = memory.allocations;
  figures[4] = memory.total_allocated;
}
void trainjob_gpu_reset_peak(int index) { standin::memory[index].peak = standin::memory[index].allocated.load(); }
}
