// One collective under way on gloo, as torch.distributed waits for it.
#pragma once

#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include "relabel.h"

namespace standin {

using c10d::ReduceOp;
using c10d::Work;
using Tensors = std::vector<at::Tensor>;
using WorkPtr = c10::intrusive_ptr<Work>;

// The memory of a tensor, as gloo takes it: written to outside inference mode, too, wherever the tensor was made.
inline at::Tensor memory_of(const at::Tensor& tensor) { return as_cpu(tensor, true); }

// `after` puts the results where they belong. torch's profiler shows it under `title`.
class Carried final : public Work {
 public:
  Carried(const std::string& title, const Tensors& inputs, std::vector<WorkPtr> works, Tensors outputs,
          std::function<void()> after, c10::DeviceIndex device)
      : Work(-1, c10d::OpType::UNKNOWN, title.empty() ? nullptr : title.c_str(), inputs),
        works_(std::move(works)),
        outputs_(std::move(outputs)),
        after_(std::move(after)),
        future_(c10::make_intrusive<c10::ivalue::Future>(c10::ListType::create(c10::TensorType::get()),
                                                         std::vector<c10::Device>{{c10::kCUDA, device}})) {}

  bool isCompleted() override {
    for (auto& work : works_)
      if (!work->isCompleted()) return false;
    finish();
    return true;
  }
  bool isSuccess() const override { return true; }
  Tensors result() override { return outputs_; }
  void synchronize() override { wait(); }
  bool wait(std::chrono::milliseconds timeout = kNoTimeout) override {
    for (auto& work : works_) work->wait(timeout);
    finish();
    return true;
  }
  void abort() override {
    for (auto& work : works_) work->abort();
  }
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override {
    wait();
    return future_;
  }

 private:
  void finish() {
    std::lock_guard<std::mutex> lock(guard_);
    if (finished_) return;
    finished_ = true;
    if (after_) after_();
    if (recordFunctionEndCallback_) recordFunctionEndCallback_();
    future_->markCompleted(c10::IValue(outputs_));
  }
  std::vector<WorkPtr> works_;
  Tensors outputs_;
  std::function<void()> after_;
  c10::intrusive_ptr<c10::ivalue::Future> future_;
  std::mutex guard_;
  bool finished_ = false;
};

}  // namespace standin
