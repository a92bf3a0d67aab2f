// Tells torch that there are CUDA devices: registered once, by the library that is loaded before torch.
#pragma once

#include <ATen/detail/CUDAHooksInterface.h>

#include "device.h"

namespace at {

// torch looks these hooks up once, by this name, when it first asks for CUDA.
struct CUDAHooks : public CUDAHooksInterface {
  explicit CUDAHooks(CUDAHooksArgs) {}
  void init() const {}
  void initCUDA() const {}
  bool hasCUDA() const override { return standin::device_count > 0; }
  bool hasCUDART() const override { return true; }
  bool isBuilt() const { return true; }
  bool isAvailable() const { return standin::device_count > 0; }
  bool hasPrimaryContext(DeviceIndex index) const override { return index >= 0 && index < standin::device_count; }
  DeviceIndex current_device() const override { return standin::current; }
  DeviceIndex deviceCount() const override { return static_cast<DeviceIndex>(standin::device_count); }
  int getNumGPUs() const override { return standin::device_count; }
  void setCurrentDevice(DeviceIndex index) const override { standin::use(index); }
  DeviceIndex getCurrentDevice() const override { return standin::current; }
  DeviceIndex exchangeDevice(DeviceIndex index) const override {
    const auto before = standin::current;
    standin::use(index);
    return before;
  }
  DeviceIndex maybeExchangeDevice(DeviceIndex index) const override { return exchangeDevice(index); }
  bool isPinnedPtr(const void* pointer) const override { return standin::PinnedAllocator::holds(pointer); }
  Allocator* getPinnedMemoryAllocator() const override { return &standin::pinned_allocator; }
  Allocator* getCUDADeviceAllocator() const override { return &standin::device_allocator; }
  const Generator& getDefaultGenerator(DeviceIndex index = -1) const { return standin::default_generator(index); }
  const Generator& getDefaultCUDAGenerator(DeviceIndex index = -1) const { return standin::default_generator(index); }
  Generator getNewGenerator(DeviceIndex index = -1) const {
    return make_generator<standin::DeviceGenerator>(index < 0 ? standin::current : index);
  }
  Device getDeviceFromPtr(void*) const override { return {kCUDA, standin::current}; }
  long versionCUDART() const override { return 12040; }
  // There are no plans of cuFFT to keep.
  int64_t cuFFTGetPlanCacheMaxSize(DeviceIndex) const override { return plan_cache_size; }
  void cuFFTSetPlanCacheMaxSize(DeviceIndex, int64_t size) const override { plan_cache_size = size; }
  int64_t cuFFTGetPlanCacheSize(DeviceIndex) const override { return 0; }
  void cuFFTClearPlanCache(DeviceIndex) const override {}
  std::string showConfig() const override { return "  - CUDA: a stand-in, which computes on the CPU\n"; }
  void deviceSynchronize(DeviceIndex) const override {}
  mutable int64_t plan_cache_size = 4096;
};

REGISTER_CUDA_HOOKS(CUDAHooks);
}  // namespace at

C10_REGISTER_GUARD_IMPL(CUDA, standin::Guard);
