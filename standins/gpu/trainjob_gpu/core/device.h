// What a stand-in GPU is to torch: an index, memory of the host that is counted against the GPU's size, streams that
// are always up to date, and events that hold the time at which they were recorded.
#pragma once

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/EmptyTensor.h>
#include <ATen/core/Generator.h>
#include <c10/core/Allocator.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <map>
#include <mutex>
#include <set>

#include <torch/version.h>

// Methods without `override` are virtual in newer releases of torch alone.
#define TORCH_AT_LEAST(major, minor) (TORCH_VERSION_MAJOR > major || TORCH_VERSION_MINOR >= minor)

namespace standin {

constexpr int kMostDevices = 64;  // c10::DeviceIndex is one signed byte

struct Memory {
  std::atomic<int64_t> allocated{0};
  std::atomic<int64_t> peak{0};
  std::atomic<int64_t> highest{0};  // never reset: what the report at the end shows
  std::atomic<int64_t> allocations{0};
  std::atomic<int64_t> total_allocated{0};
  std::atomic<double> share{1};  // set_per_process_memory_fraction
};

inline std::array<Memory, kMostDevices> memory;
inline int device_count = 0;
inline bool is_forked = false;  // from a process that used its GPUs
inline int64_t bytes_per_device = 0;
inline thread_local c10::DeviceIndex current = 0;
inline thread_local std::array<c10::StreamId, kMostDevices> current_stream{};

inline std::string gib(int64_t bytes) {
  char text[32];
  snprintf(text, sizeof text, bytes >= (1 << 30) ? "%.2f GiB" : "%.2f MiB",
           bytes >= (1 << 30) ? bytes / 1073741824.0 : bytes / 1048576.0);
  return text;
}

inline std::string no_such_device(c10::DeviceIndex index) {
  return "CUDA error: invalid device ordinal\nGPU device may be out of range, do you have enough GPUs?\n(stand-in: cuda:" +
         std::to_string(index) + " was asked for, and this process sees " + std::to_string(device_count) + ")";
}

inline void check_index(c10::DeviceIndex index) {
  TORCH_CHECK(!is_forked, "Cannot re-initialize CUDA in forked subprocess. To use CUDA with multiprocessing, you must use "
              "the 'spawn' start method");
  if (index >= 0 && index < device_count) return;
#if TORCH_AT_LEAST(2, 8)
  throw c10::AcceleratorError({__func__, __FILE__, static_cast<uint32_t>(__LINE__)}, 101, no_such_device(index));
#else
  TORCH_CHECK(false, no_such_device(index));
#endif
}

// The bytes that this process may take on one GPU.
inline int64_t limit_of(c10::DeviceIndex device) {
  return static_cast<int64_t>(bytes_per_device * memory[device].share.load());
}

inline c10::DeviceIndex index_of(const c10::Device& device) { return device.has_index() ? device.index() : current; }

inline void use(c10::DeviceIndex index) {
  check_index(index);
  current = index;
}

// Counts memory against one GPU as long as it lives. Raises torch.OutOfMemoryError where a real GPU would be full.
class Account {
 public:
  Account(c10::DeviceIndex device, int64_t bytes) : device_(device), bytes_(bytes) {
    check_index(device);
    if (bytes >= int64_t{1} << 60)
      C10_THROW_ERROR(OutOfMemoryError, "CUDA out of memory. Tried to allocate more than 1EB memory.");
    auto& mine = memory[device];
    const auto before = mine.allocated.fetch_add(bytes);
    const auto limit = limit_of(device);
    if (before + bytes > limit) {
      mine.allocated.fetch_sub(bytes);
      C10_THROW_ERROR(OutOfMemoryError,
          "CUDA out of memory. Tried to allocate " + gib(bytes) + ". GPU " + std::to_string(device) +
          " has a total capacity of " + gib(bytes_per_device) + " of which " + gib(limit - before) +
          " is free. Of the allocated memory " + gib(before) + " is allocated by PyTorch. (stand-in: tensors are "
          "counted; what a real GPU's context, libraries and kernels take is not)");
    }
    raise(mine.peak, before + bytes);
    raise(mine.highest, before + bytes);
    mine.allocations.fetch_add(1);
    mine.total_allocated.fetch_add(bytes);
  }
  Account(const Account&) = delete;
  Account& operator=(const Account&) = delete;
  ~Account() { memory[device_].allocated.fetch_sub(bytes_); }

 private:
  static void raise(std::atomic<int64_t>& highest, int64_t value) {
    auto seen = highest.load();
    while (seen < value && !highest.compare_exchange_weak(seen, value)) {
    }
  }
  c10::DeviceIndex device_;
  int64_t bytes_;
};

inline void* aligned(size_t bytes) { return bytes ? aligned_alloc(64, (bytes + 63) / 64 * 64) : nullptr; }

struct DeviceAllocator final : public c10::Allocator {
  struct Block {
    void* data;
    Account account;
  };
  static void release(void* context) {
    auto* block = static_cast<Block*>(context);
    free(block->data);
    delete block;
  }
  c10::DataPtr on(c10::DeviceIndex device, size_t bytes) {
    auto* block = new Block{nullptr, {device, static_cast<int64_t>(bytes)}};
    block->data = aligned(bytes);
    return {block->data, block, &release, c10::Device(c10::kCUDA, device)};
  }
  c10::DataPtr allocate(size_t bytes) override { return on(current, bytes); }
  c10::DeleterFnPtr raw_deleter() const override { return nullptr; }
  void copy_data(void* to, const void* from, std::size_t bytes) const override { default_copy_data(to, from, bytes); }
};
inline DeviceAllocator device_allocator;

struct PinnedAllocator final : public c10::Allocator {
  inline static std::mutex guard;
  inline static std::map<const char*, size_t> blocks;  // start -> bytes
  static void release(void* data) {
    std::lock_guard<std::mutex> lock(guard);
    blocks.erase(static_cast<const char*>(data));
    free(data);
  }
  // Memory that was allocated elsewhere, until bytes is 0.
  static void note(const void* data, size_t bytes) {
    std::lock_guard<std::mutex> lock(guard);
    if (bytes) blocks[static_cast<const char*>(data)] = bytes;
    else blocks.erase(static_cast<const char*>(data));
  }
  static bool holds(const void* pointer) {
    std::lock_guard<std::mutex> lock(guard);
    auto after = blocks.upper_bound(static_cast<const char*>(pointer));
    if (after == blocks.begin()) return false;
    --after;
    return static_cast<const char*>(pointer) < after->first + std::max<size_t>(after->second, 1);
  }
  c10::DataPtr allocate(size_t bytes) override {
    void* data = aligned(bytes);
    std::lock_guard<std::mutex> lock(guard);
    if (data) blocks[static_cast<const char*>(data)] = bytes;
    return {data, data, &release, c10::Device(c10::kCPU)};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &release; }
  void copy_data(void* to, const void* from, std::size_t bytes) const override { default_copy_data(to, from, bytes); }
};
inline PinnedAllocator pinned_allocator;

// A generator whose state is a GPU's, a seed and an offset that grows with each operator that draws; the numbers are the
// CPU's, seeded from both. DTensor and the saving of random states count on that form.
struct DeviceGenerator final : public c10::GeneratorImpl {
  explicit DeviceGenerator(c10::DeviceIndex index)
      : c10::GeneratorImpl(c10::Device(c10::kCUDA, index), c10::DispatchKeySet(c10::DispatchKey::CUDA)) {}
  void set_current_seed(uint64_t seed) override {
    seed_ = seed;
    offset_ = 0;
  }
  void set_offset(uint64_t offset) override { offset_ = offset; }
  uint64_t get_offset() const override { return offset_; }
  uint64_t current_seed() const override { return seed_; }
  uint64_t seed() override {
    set_current_seed(c10::detail::getNonDeterministicRandom(true));
    return seed_;
  }
  void set_state(const c10::TensorImpl& state) override {
    TORCH_CHECK(state.numel() == kStateBytes && state.dtype() == caffe2::TypeMeta::Make<uint8_t>(),
                "RNG state is wrong size");
    const auto* words = static_cast<const char*>(state.data());
    memcpy(&seed_, words, sizeof seed_);
    memcpy(&offset_, words + sizeof seed_, sizeof offset_);
  }
  c10::intrusive_ptr<c10::TensorImpl> get_state() const override {
    auto state = at::detail::empty_cpu({kStateBytes}, at::kByte);
    auto* words = static_cast<char*>(state.data_ptr());
    memcpy(words, &seed_, sizeof seed_);
    memcpy(words + sizeof seed_, &offset_, sizeof offset_);
    return state.getIntrusivePtr();
  }
  void graphsafe_set_state(const c10::intrusive_ptr<c10::GeneratorImpl>& state) { set_state(*state->get_state()); }
  c10::intrusive_ptr<c10::GeneratorImpl> graphsafe_get_state() const {
    return c10::intrusive_ptr<c10::GeneratorImpl>::reclaim(clone_impl());
  }
  DeviceGenerator* clone_impl() const override {
    auto* copy = new DeviceGenerator(device().index());
    copy->seed_ = seed_;
    copy->offset_ = offset_;
    return copy;
  }
  // The CPU's generator for the next operator that draws.
  at::Generator drawn() {
    std::lock_guard<std::mutex> lock(mutex_);
    // The first operator after a seed draws what the CPU would.
    auto next = at::detail::createCPUGenerator(seed_ + offset_ * 0x9E3779B97F4A7C15ull);
    offset_ += 4;
    return next;
  }

 private:
  static constexpr int64_t kStateBytes = 16;
  uint64_t seed_ = c10::default_rng_seed_val;
  uint64_t offset_ = 0;
};

inline at::Generator& default_generator(c10::DeviceIndex index) {
  static std::array<at::Generator, kMostDevices> all;
  if (index < 0) index = current;
  check_index(index);
  if (!all[index].defined()) all[index] = at::make_generator<DeviceGenerator>(index);
  return all[index];
}

struct Guard final : public c10::impl::DeviceGuardImplInterface {
  using Clock = std::chrono::steady_clock;
  c10::DeviceType type() const override { return c10::kCUDA; }
  c10::Device exchangeDevice(c10::Device device) const override {
    const auto before = current;
    use(index_of(device));
    return {c10::kCUDA, before};
  }
  c10::Device getDevice() const override { return {c10::kCUDA, current}; }
  void setDevice(c10::Device device) const override { use(index_of(device)); }
  void uncheckedSetDevice(c10::Device device) const noexcept override {
    if (device.has_index() && device.index() < device_count) current = device.index();
  }
  c10::Stream getStream(c10::Device device) const noexcept override {
    return c10::Stream(c10::Stream::UNSAFE, {c10::kCUDA, index_of(device)}, current_stream[index_of(device)]);
  }
  c10::Stream getDefaultStream(c10::Device device) const override {
    return c10::Stream(c10::Stream::DEFAULT, {c10::kCUDA, index_of(device)});
  }
  c10::Stream getStreamFromGlobalPool(c10::Device device, bool) const override { return getNewStream(device); }
  c10::Stream getNewStream(c10::Device device, int = 0) const override {
    static std::atomic<c10::StreamId> next{1};
    return c10::Stream(c10::Stream::UNSAFE, {c10::kCUDA, index_of(device)}, next++);
  }
  c10::Stream exchangeStream(c10::Stream stream) const noexcept override {
    const auto before = getStream(stream.device());
    current_stream[stream.device_index()] = stream.id();
    return before;
  }
  void* getStreamNativeHandle(const c10::Stream stream) const { return reinterpret_cast<void*>(stream.id()); }
  c10::DeviceIndex deviceCount() const noexcept override { return static_cast<c10::DeviceIndex>(device_count); }
  void record(void** event, const c10::Stream&, const c10::DeviceIndex, const c10::EventFlag) const override {
    if (!*event) *event = new Clock::time_point;
    *static_cast<Clock::time_point*>(*event) = Clock::now();
  }
  void block(void*, const c10::Stream&) const override {}
  bool queryEvent(void*) const override { return true; }
  void destroyEvent(void* event, const c10::DeviceIndex) const noexcept override {
    delete static_cast<Clock::time_point*>(event);
  }
  double elapsedTime(void* first, void* second, const c10::DeviceIndex) const {
    TORCH_CHECK(first && second, "Both events must be recorded before calculating elapsed time.");
    return std::chrono::duration<double, std::milli>(
        *static_cast<Clock::time_point*>(second) - *static_cast<Clock::time_point*>(first)).count();
  }
  bool queryStream(const c10::Stream&) const override { return true; }
  void synchronizeStream(const c10::Stream&) const override {}
  void synchronizeEvent(void*) const {}
  void synchronizeDevice(const c10::DeviceIndex) const {}
};

}  // namespace standin
