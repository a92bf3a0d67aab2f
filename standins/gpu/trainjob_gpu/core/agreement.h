// What ranks of a group agree on before a collective: each its own GPU, and all the same call. Where NCCL would hang, this
// says who is where.
#pragma once

#include <thread>

#include "work.h"

namespace standin {

struct Agreement {
  c10::intrusive_ptr<c10d::Store> store;
  c10::intrusive_ptr<c10d::Backend> gloo;
  int rank, size;
  std::string where;                 // the host and, with the index, the GPU that this rank is on
  std::chrono::milliseconds limit;   // how long the other ranks may stay away
  // Tells where the others are while this rank waits: on standard error, or, the last time, as the text of the error.
  std::function<std::string(const std::string&, const std::string&, bool)> waiting;

  // Compares what this rank is about to call, and from which line, with the others' calls.
  void reach(const std::string& what, const std::string& line) const {
    if (size == 1) return;
    auto text = (what.substr(0, kCall) + "\n" + line).substr(0, kBytes - 1);
    auto mine = at::zeros({kBytes}, at::kByte);
    memcpy(mine.data_ptr(), text.data(), text.size());
    auto all = at::empty({size * kBytes}, at::kByte);
    wait_for_others(all, mine, what, line);
    const auto* texts = static_cast<const char*>(all.data_ptr());
    for (int other = 0; other < size; other++) {
      const std::string theirs(texts + other * kBytes);
      if (theirs.substr(0, theirs.find('\n')) != what.substr(0, kCall)) refuse_difference(texts);
    }
  }

  // With the first collective, when it is known which GPU each rank uses: no two may share one.
  void meet(c10::DeviceIndex device, const std::string& what, const std::string& line) const {
    const auto index = device < 0 ? std::string("none") : std::to_string(device);
    const auto mine = where + " " + index;
    store->set("trainjob_gpu/" + std::to_string(rank), std::vector<uint8_t>(mine.begin(), mine.end()));
    for (int other = 0; other < size; other++) {
      const auto key = "trainjob_gpu/" + std::to_string(other);
      until([&] { return store->check({key}); }, std::chrono::milliseconds(2), what, line);
      const auto bytes = store->get(key);
      TORCH_CHECK_WITH(DistBackendError, device < 0 || other == rank || std::string(bytes.begin(), bytes.end()) != mine,
                       "NCCL error: invalid usage\nncclInvalidUsage: This usually reflects invalid usage of NCCL "
                       "library.\nLast error:\nDuplicate GPU detected : rank ", rank, " and rank ", other,
                       " both on CUDA device cuda:", index);
    }
  }

 private:
  static constexpr int64_t kBytes = 1024, kCall = 250;

  void wait_for_others(at::Tensor& all, at::Tensor& mine, const std::string& what, const std::string& line) const {
    try {
      auto work = gloo->_allgather_base(all, mine);
      until([&] { return work->isCompleted(); }, std::chrono::microseconds(100), what, line);
      work->wait();
    } catch (const c10::DistBackendError&) {
      throw;
    } catch (const std::exception& error) {
      TORCH_CHECK_WITH(DistBackendError, false, "rank ", rank, " waits in ", what, " at ", line,
                       ", and another rank has ended or left the group: on GPUs this rank would hang. gloo says: ",
                       error.what());
    }
  }

  // Waits, looking again after each `pause`. Says where the others are after a quarter of the limit, and raises after it.
  void until(const std::function<bool()>& has_arrived, std::chrono::microseconds pause, const std::string& what,
             const std::string& line) const {
    const auto began = std::chrono::steady_clock::now();
    bool was_told = false;
    while (!has_arrived()) {
      const auto waited = std::chrono::steady_clock::now() - began;
      TORCH_CHECK_WITH(DistBackendError, waited < limit, waiting(what, line, true));
      if (!was_told && waited > limit / 4) {
        waiting(what, line, false);
        was_told = true;
      }
      std::this_thread::sleep_for(pause);
    }
  }

  [[noreturn]] void refuse_difference(const char* texts) const {
    std::string message = "ranks call different collectives, and on GPUs all of them would hang here:";
    for (int other = 0; other < size; other++) {
      const std::string text(texts + other * kBytes);
      const auto end = text.find('\n');
      message += "\n  rank " + std::to_string(other) + ": " + text.substr(0, end) + " at " + text.substr(end + 1);
    }
    TORCH_CHECK(false, message);
  }
};

}  // namespace standin
