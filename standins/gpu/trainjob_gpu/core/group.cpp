// What torch.distributed takes for NCCL: collectives of stand-in GPUs' tensors, carried by gloo over the same memory.
// Refused is what NCCL refuses: tensors of the CPU, and two ranks on one GPU. What gloo lacks is put together from what
// it has. Before each collective the ranks compare what they are about to call, where NCCL would hang.
#include <pybind11/chrono.h>
#include <torch/csrc/distributed/c10d/Utils.hpp>
#include <torch/csrc/utils/pybind.h>

#include <c10/util/strides.h>

#include "agreement.h"

namespace standin {

class Nccl final : public c10d::Backend {
 public:
  struct Options final : public c10d::Backend::Options {
    explicit Options(bool high_priority = false)
        : c10d::Backend::Options("nccl", std::chrono::minutes(10)), is_high_priority_stream(high_priority) {}
    bool is_high_priority_stream;
  };

  Nccl(int rank, int size, c10::intrusive_ptr<Options> options, c10::intrusive_ptr<c10d::Backend> gloo,
       Agreement agreement, std::function<std::string(const std::string&, const Tensors&)> note)
      : Backend(rank, size),
        options_(std::move(options)),
        gloo_(std::move(gloo)),
        agreement_(std::move(agreement)),
        note_(std::move(note)) {}

  const std::string getBackendName() const override { return "nccl"; }
  c10::intrusive_ptr<c10d::Backend::Options> getBackendOptions() { return c10::static_intrusive_pointer_cast<c10d::Backend::Options>(options_); }
  void abort() { has_ended_ = true; }
  void shutdown() { has_ended_ = true; }
  bool supportsCoalescing() const { return true; }
  void setSequenceNumberForGroup() override {}
  uint64_t getSequenceNumberForGroup() override { return sequence_; }
  void setTimeout(std::chrono::milliseconds timeout) {
    options_->timeout = timeout;
#if TORCH_AT_LEAST(2, 8)
    gloo_->setTimeout(timeout);
#endif
  }
#if TORCH_AT_LEAST(2, 8)
  c10d::ErrorType getError() override { return c10d::ErrorType::SUCCESS; }
#endif

  bool checks_nan = c10d::getCvarBool({"TORCH_NCCL_NAN_CHECK"}, false);
  int splits = 0;

  // init_process_group(device_id=...)
  void eagerConnectSingleDevice(at::Device device) {
    check_index(device.index());
    meet(device.index(), "init_process_group", note_("init_process_group", {}));
  }

  void startCoalescing() override {
    coalescing_ = true;
    gathered_.clear();
    sent_to_self_.clear();
    received_from_self_.clear();
  }
  WorkPtr endCoalescing() override {
    coalescing_ = false;
    TORCH_CHECK(sent_to_self_.size() == received_from_self_.size(), "rank ", getRank(), " sends ",
                sent_to_self_.size(), " tensors to itself, and receives ", received_from_self_.size(), " from itself");
    for (size_t n = 0; n < sent_to_self_.size(); n++) copy_all(received_from_self_[n], cpu(sent_to_self_[n]));
    auto works = std::move(gathered_);
    gathered_.clear();
    return carried("", {}, std::move(works), {}, nullptr);
  }

  WorkPtr broadcast(Tensors& tensors, const c10d::BroadcastOptions& options) override {
    begin("broadcast from rank " + std::to_string(options.rootRank), tensors, true, options.rootRank == getRank());
    auto aliases = cpu(tensors);
    return carried("nccl:broadcast", tensors, {gloo_->broadcast(aliases, options)}, tensors, nullptr);
  }

  WorkPtr allreduce(Tensors& tensors, const c10d::AllreduceOptions& options) override {
    begin("all_reduce " + name(options.reduceOp), tensors);
    std::vector<WorkPtr> works;
    for (auto& tensor : tensors) works.push_back(reduced(tensor, options.reduceOp));
    return carried("nccl:all_reduce", tensors, std::move(works), tensors, averaging(options.reduceOp, tensors));
  }

  WorkPtr allreduce_coalesced(Tensors& tensors, const c10d::AllreduceCoalescedOptions& options) override {
    return allreduce(tensors, options);
  }

  WorkPtr reduce(Tensors& tensors, const c10d::ReduceOptions& options) override {
    begin("reduce to rank " + std::to_string(options.rootRank), tensors);
    auto changed = options;
    changed.reduceOp = summed(options.reduceOp);
    auto aliases = cpu(tensors);
    return carried("nccl:reduce", tensors, {gloo_->reduce(aliases, changed)}, tensors, averaging(options.reduceOp, tensors));
  }

  WorkPtr allgather(std::vector<Tensors>& outputs, Tensors& inputs, const c10d::AllgatherOptions& options) override {
    const auto& wanted_sizes = outputs.at(0);
    const bool is_even = std::all_of(wanted_sizes.begin(), wanted_sizes.end(), [&](const at::Tensor& output) {
      return output.sizes() == wanted_sizes[0].sizes();
    });
    begin("all_gather", inputs, is_even);
    check(wanted_sizes);
    if (!is_even) return gathered_one_by_one(outputs[0], inputs[0]);
    auto from = cpu(inputs);
    // gloo wants results that are dense: they are gathered beside, and copied.
    std::vector<Tensors> to{dense_like(outputs[0])};
    auto work = gloo_->allgather(to, from, options);
    auto wanted = outputs[0];
    return carried("nccl:all_gather", inputs, {work}, wanted, [wanted, gathered = to[0]] { copy_all(wanted, gathered); });
  }

  WorkPtr _allgather_base(at::Tensor& output, at::Tensor& input, const c10d::AllgatherOptions& options) override {
    begin("all_gather_into_tensor", {input});
    return gathered_into(output, input, options);
  }

  WorkPtr allgather_into_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                          const c10d::AllgatherOptions& options) override {
    begin("all_gather_into_tensor_coalesced", inputs);
    std::vector<WorkPtr> works;
    for (size_t n = 0; n < inputs.size(); n++) works.push_back(gathered_into(outputs[n], inputs[n], options));
    return carried("nccl:all_gather_into_tensor_coalesced", inputs, std::move(works), outputs, nullptr);
  }

  WorkPtr gather(std::vector<Tensors>& outputs, Tensors& inputs, const c10d::GatherOptions& options) override {
    begin("gather to rank " + std::to_string(options.rootRank), inputs);
    auto from = cpu(inputs);
    std::vector<Tensors> to;
    for (auto& tensors : outputs) to.push_back(cpu(tensors));
    return carried("nccl:gather", inputs, {gloo_->gather(to, from, options)}, outputs.empty() ? Tensors{} : outputs[0], nullptr);
  }

  WorkPtr scatter(Tensors& outputs, std::vector<Tensors>& inputs, const c10d::ScatterOptions& options) override {
    begin("scatter from rank " + std::to_string(options.rootRank), outputs, true, false);
    auto to = cpu(outputs);
    std::vector<Tensors> from;
    for (auto& tensors : inputs) from.push_back(cpu(tensors));
    return carried("nccl:scatter", outputs, {gloo_->scatter(to, from, options)}, outputs, nullptr);
  }

  WorkPtr reduce_scatter(Tensors& outputs, std::vector<Tensors>& inputs,
                         const c10d::ReduceScatterOptions& options) override {
    begin("reduce_scatter " + name(options.reduceOp), inputs.at(0));
    // gloo sums every part; this rank keeps its own.
    Tensors parts;
    std::vector<WorkPtr> works;
    for (auto& part : inputs[0]) {
      parts.push_back(memory_of(part).clone());
      works.push_back(reduced(parts.back(), options.reduceOp));
    }
    auto mine = parts[getRank()];
    auto output = outputs[0];
    return carried("nccl:reduce_scatter", inputs.at(0), std::move(works), outputs, [this, output, mine, op = options.reduceOp] {
      memory_of(output).copy_(averaged(op) ? mine.div(getSize()) : mine);
    });
  }

  WorkPtr _reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                               const c10d::ReduceScatterOptions& options) override {
    begin("reduce_scatter_tensor " + name(options.reduceOp), {input});
    return scattered_into(output, input, options);
  }

  WorkPtr reduce_scatter_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                          const c10d::ReduceScatterOptions& options) override {
    begin("reduce_scatter_tensor_coalesced " + name(options.reduceOp), inputs);
    std::vector<WorkPtr> works;
    for (size_t n = 0; n < inputs.size(); n++) works.push_back(scattered_into(outputs[n], inputs[n], options));
    return carried("nccl:reduce_scatter_tensor_coalesced", inputs, std::move(works), outputs, nullptr);
  }

  WorkPtr alltoall_base(at::Tensor& output, at::Tensor& input, std::vector<int64_t>& output_splits,
                        std::vector<int64_t>& input_splits, const c10d::AllToAllOptions& options) override {
    begin("all_to_all_single", {input}, false);
    auto to = moved(output), from = moved(input);
    return carried("nccl:all_to_all", {input}, {exchanged(to, from, output_splits, input_splits, options)}, {output}, nullptr);
  }

  WorkPtr alltoall(Tensors& outputs, Tensors& inputs, const c10d::AllToAllOptions& options) override {
    begin("all_to_all", inputs, false);
    Tensors flat;
    std::vector<int64_t> out_sizes, in_sizes;
    for (auto& input : inputs) {
      flat.push_back(moved(input).reshape(-1));
      in_sizes.push_back(input.numel());
    }
    int64_t items = 0;
    for (auto& output : outputs) {
      out_sizes.push_back(output.numel());
      items += output.numel();
    }
    auto from = at::cat(flat), to = at::empty({items}, from.options());
    auto work = exchanged(to, from, out_sizes, in_sizes, options);
    return carried("nccl:all_to_all", inputs, {work}, outputs, [outputs, to, out_sizes] {
      auto parts = to.split_with_sizes(out_sizes);
      for (size_t n = 0; n < outputs.size(); n++) moved(outputs[n]).copy_(parts[n].view(outputs[n].sizes()));
    });
  }

  WorkPtr send(Tensors& tensors, int to, int tag) override {
    check(tensors, true);
    note_("send to rank " + std::to_string(to), tensors);
    if (to == getRank()) return to_self(sent_to_self_, tensors);
    auto aliases = as_they_lie(tensors);
    const auto title = "nccl:send " + std::to_string(getRank()) + "->" + std::to_string(to);
    return carried(title, tensors, {gloo_->send(aliases, to, tag)}, tensors, nullptr);
  }
  WorkPtr recv(Tensors& tensors, int from, int tag) override {
    check(tensors, true);
    note_("recv from rank " + std::to_string(from), tensors);
    if (from == getRank()) return to_self(received_from_self_, tensors);
    auto aliases = as_they_lie(tensors);
    const auto title = "nccl:recv " + std::to_string(getRank()) + "<-" + std::to_string(from);
    return carried(title, tensors, {gloo_->recv(aliases, from, tag)}, tensors, nullptr);
  }
  WorkPtr recvAnysource(Tensors& tensors, int tag) override {
    check(tensors, true);
    note_("recv from any rank", tensors);
    auto aliases = cpu(tensors);
    return carried("nccl:recvAnySource", tensors, {gloo_->recvAnysource(aliases, tag)}, tensors, nullptr);
  }

  WorkPtr barrier(const c10d::BarrierOptions& options) override {
    begin("barrier", {});
    return carried("nccl:all_reduce_barrier", {}, {gloo_->barrier()}, {}, nullptr);
  }

 private:
  // gloo doesn't know float8: its bytes are moved.
  static at::Tensor moved(const at::Tensor& tensor) {
    const auto alias = memory_of(tensor);
    return c10::isFloat8Type(alias.scalar_type()) ? alias.view(at::kByte) : alias;
  }
  // What goes to one rank is read as it lies in memory, in whatever order.
  static at::Tensor as_it_lies(const at::Tensor& tensor) {
    const auto alias = moved(tensor);
    return alias.is_contiguous() ? alias : alias.as_strided(alias.sizes(), c10::contiguous_strides(alias.sizes()));
  }
  static Tensors as_they_lie(const Tensors& tensors) {
    Tensors aliases;
    for (const auto& tensor : tensors) aliases.push_back(as_it_lies(tensor));
    return aliases;
  }
  static Tensors cpu(const Tensors& tensors) {
    Tensors aliases;
    for (const auto& tensor : tensors) aliases.push_back(moved(tensor));
    return aliases;
  }
  static Tensors dense_like(const Tensors& tensors) {
    Tensors made;
    for (const auto& tensor : tensors) made.push_back(at::empty(tensor.sizes(), moved(tensor).options()));
    return made;
  }
  static void copy_all(const Tensors& to, const Tensors& from) {
    for (size_t n = 0; n < to.size(); n++) moved(to[n]).copy_(from[n]);
  }

  WorkPtr to_self(std::vector<Tensors>& pending, const Tensors& tensors) {
    TORCH_CHECK(coalescing_, "rank ", getRank(), " sends to itself outside batch_isend_irecv: NCCL would hang");
    pending.push_back(tensors);
    return carried("", {}, {}, tensors, nullptr);
  }

  // Between two ranks (`is_p2p`) NCCL takes tensors that are not contiguous.
  void check(const Tensors& tensors, bool is_p2p = false) const {
    TORCH_CHECK_WITH(DistBackendError, !has_ended_, "NCCL communicator was aborted on rank ", getRank(),
                     ": the process group was destroyed before this call");
    for (const auto& tensor : tensors) {
      TORCH_CHECK(tensor.is_cuda() && !tensor.is_sparse(), "Tensors must be CUDA and dense");
      TORCH_CHECK_VALUE(is_p2p || tensor.is_contiguous(tensor.suggest_memory_format()), "Tensors must be contiguous");
      const auto bound = getBoundDeviceId();
      TORCH_CHECK_WITH(DistBackendError, !bound || *bound == tensor.device(),
                       "Attempt to perform collective on tensor not on device passed to init_process_group: the tensor is on ",
                       tensor.device(), ", and device_id was ", *bound);
    }
  }

  static bool averaged(const ReduceOp& op) { return op == ReduceOp::AVG; }
  static ReduceOp summed(const ReduceOp& op) {
    TORCH_CHECK(op != ReduceOp::PREMUL_SUM, "stand-in GPUs have no PREMUL_SUM: multiply before, and sum");
    return averaged(op) ? ReduceOp(ReduceOp::SUM) : op;
  }
  static std::string name(const ReduceOp& op) {
    static const char* const names[] = {"SUM", "AVG", "PRODUCT", "MIN", "MAX", "BAND", "BOR", "BXOR", "PREMUL_SUM"};
    return names[static_cast<int>(static_cast<ReduceOp::RedOpType>(op))];
  }
  std::function<void()> averaging(const ReduceOp& op, const Tensors& tensors) const {
    if (!averaged(op)) return nullptr;
    return [tensors, size = getSize()] {
      // Of whole numbers NCCL drops the fraction.
      for (const auto& tensor : tensors) {
        auto sum = memory_of(tensor);
        if (sum.is_floating_point() || sum.is_complex()) sum.div_(size);
        else sum.div_(size, "trunc");
      }
    };
  }

  WorkPtr reduced(const at::Tensor& tensor, const ReduceOp& op) {
    c10d::AllreduceOptions options;
    options.reduceOp = summed(op);
    Tensors aliases{memory_of(tensor)};
    return gloo_->allreduce(aliases, options);
  }

  // What each rank gives has its own size: each broadcasts, as NCCL does.
  WorkPtr gathered_one_by_one(const Tensors& outputs, const at::Tensor& input) {
    auto gathered = dense_like(outputs);
    gathered.at(getRank()).copy_(moved(input));
    std::vector<WorkPtr> works;
    for (int root = 0; root < getSize(); root++) {
      c10d::BroadcastOptions options;
      options.rootRank = root;
      Tensors one{gathered[root]};
      works.push_back(gloo_->broadcast(one, options));
    }
    return carried("nccl:all_gather", {input}, std::move(works), outputs,
                   [outputs, gathered] { copy_all(outputs, gathered); });
  }

  // gloo takes the splits away from who calls it.
  WorkPtr exchanged(at::Tensor& to, at::Tensor& from, std::vector<int64_t> out_sizes, std::vector<int64_t> in_sizes,
                    const c10d::AllToAllOptions& options) {
    return gloo_->alltoall_base(to, from, out_sizes, in_sizes, options);
  }

  WorkPtr gathered_into(at::Tensor& output, at::Tensor& input, const c10d::AllgatherOptions& options) {
    check({output, input});
    TORCH_CHECK(output.numel() == input.numel() * getSize(),
                "output tensor size must be equal to world_size times input tensor size");
    // NCCL fills the output in one piece, whatever its shape; gloo cuts it along the first dimension.
    auto to = moved(output).view(-1), from = moved(input).reshape(-1).clone();
    return carried("nccl:_all_gather_base", {input}, {gloo_->_allgather_base(to, from, options)}, {output}, nullptr);
  }

  WorkPtr scattered_into(at::Tensor& output, at::Tensor& input, const c10d::ReduceScatterOptions& options) {
    check({output, input});
    TORCH_CHECK(input.numel() == output.numel() * getSize(),
                "input tensor must be the same size as output size times world size");
    auto all = memory_of(input).clone();
    auto work = reduced(all, options.reduceOp);
    return carried("nccl:_reduce_scatter_base", {input}, {work}, {output}, [this, output, all, op = options.reduceOp] {
      auto mine = all.reshape({getSize(), -1})[getRank()].view(output.sizes());
      memory_of(output).copy_(averaged(op) ? mine.div(getSize()) : mine);
    });
  }

  WorkPtr carried(const std::string& title, const Tensors& inputs, std::vector<WorkPtr> works, Tensors outputs,
                  std::function<void()> after) {
    const auto device = outputs.empty() || !outputs[0].is_cuda() ? c10::DeviceIndex(0) : outputs[0].device().index();
    auto work = c10::make_intrusive<Carried>(title, inputs, std::move(works), std::move(outputs), std::move(after), device);
    if (coalescing_) gathered_.push_back(work);
    return work;
  }

  // Notes the collective, and compares it with what the other ranks are about to call.
  void begin(const std::string& kind, const Tensors& tensors, bool of_equal_shapes = true, bool are_given = true) {
    check(tensors);
    if (are_given) refuse_nan(kind, tensors);
    const bool is_reduction = kind.find("reduce") != std::string::npos;
    for (const auto& tensor : tensors)
      TORCH_CHECK(!is_reduction || !c10::isFloat8Type(tensor.scalar_type()),
                  "Float8 dtypes are not currenlty supported for NCCL reductions");
    std::string what = kind;
    for (const auto& tensor : tensors)
      what += " " + (of_equal_shapes ? c10::str(tensor.scalar_type(), tensor.sizes()) : c10::str(tensor.scalar_type()));
    const auto line = note_(kind, tensors);
    meet(tensors.empty() ? c10::DeviceIndex(-1) : tensors[0].device().index(), what, line);
    agreement_.reach(what, line);
    sequence_++;
  }

  // TORCH_NCCL_NAN_CHECK: a kernel of NCCL's group asserts that no rank gives NaN.
  void refuse_nan(const std::string& kind, const Tensors& tensors) const {
    if (!checks_nan) return;
    for (const auto& tensor : tensors)
      TORCH_CHECK(!tensor.is_floating_point() || !memory_of(tensor).isnan().any().item<bool>(),
                  "CUDA error: device-side assert triggered\n(stand-in: TORCH_NCCL_NAN_CHECK is set, and rank ", getRank(),
                  " gives NaN to ", kind, ")");
  }

  void meet(c10::DeviceIndex device, const std::string& what, const std::string& line) {
    if (!met_) agreement_.meet(device, what, line);
    met_ = true;
  }

  c10::intrusive_ptr<Options> options_;
  c10::intrusive_ptr<c10d::Backend> gloo_;
  Agreement agreement_;
  std::function<std::string(const std::string&, const Tensors&)> note_;
  std::vector<WorkPtr> gathered_;
  std::vector<Tensors> sent_to_self_, received_from_self_;  // in the calls that are coalesced
  uint64_t sequence_ = 0;
  bool coalescing_ = false;
  bool met_ = false;
  bool has_ended_ = false;
};

c10::intrusive_ptr<Nccl> make(const c10::intrusive_ptr<c10d::Store>& store, int rank, int size,
                              c10::intrusive_ptr<Nccl::Options> options) {
  auto python = py::module::import("trainjob_gpu.collectives");
  auto gloo = python.attr("gloo")(store, rank, size, options->timeout).cast<c10::intrusive_ptr<c10d::Backend>>();
  // Never freed: a group may die where Python's lock is not held.
  static const auto* note = new py::object(python.attr("note"));
  static const auto* waiting = new py::object(python.attr("waiting"));
  Agreement agreement{
      store, gloo, rank, size, python.attr("where")().cast<std::string>(),
      std::chrono::milliseconds(python.attr("limit_ms")(options->timeout).cast<int64_t>()),
      [](const std::string& what, const std::string& line, bool is_last) {
        py::gil_scoped_acquire gil;
        return (*waiting)(what, line, is_last).cast<std::string>();
      }};
  return c10::make_intrusive<Nccl>(
      rank, size, std::move(options), std::move(gloo), std::move(agreement),
      [](const std::string& kind, const Tensors& tensors) {
        py::gil_scoped_acquire gil;
        int64_t bytes = 0;
        for (const auto& tensor : tensors) bytes += static_cast<int64_t>(tensor.nbytes());
        return (*note)(kind, bytes, tensors.empty() ? "" : std::string(c10::toString(tensors[0].scalar_type())))
            .cast<std::string>();
      });
}

}  // namespace standin

template <typename T>
using intrusive_ptr_class_ = py::class_<T, c10::intrusive_ptr<T>, c10d::Backend>;

PYBIND11_MODULE(trainjob_gpu_group, m) {
  using standin::Nccl;
  py::module::import("torch._C._distributed_c10d");
  auto group = py::class_<Nccl, c10::intrusive_ptr<Nccl>, c10d::Backend>(m, "ProcessGroupNCCL")
                   .def(py::init(&standin::make), py::arg("store"), py::arg("rank"), py::arg("size"),
                        py::arg("options"))
                   .def(py::init([](const c10::intrusive_ptr<c10d::Store>& store, int rank, int size,
                                    std::chrono::milliseconds timeout) {
                          auto options = c10::make_intrusive<Nccl::Options>();
                          options->timeout = timeout;
                          return standin::make(store, rank, size, std::move(options));
                        }),
                        py::arg("store"), py::arg("rank"), py::arg("size"),
                        py::arg("timeout") = std::chrono::milliseconds(600000))
                   .def("_group_start", &Nccl::startCoalescing)
                   .def("_group_end", [](Nccl& self) { self.endCoalescing(); })
                   .def("comm_split_count", [](Nccl& self) { return self.splits; })
                   .def("_set_enable_nan_check", [](Nccl& self, bool is_on) { self.checks_nan = is_on; })
                   .def("_count_split", [](Nccl& self) { return self.splits++; })
                   .def("perform_nocolor_split", [](Nccl&, py::object) {})
                   .def("_is_initialized", [](Nccl&) { return true; })
                   .def("abort", &Nccl::abort)
                   .def("_set_default_timeout", &Nccl::setTimeout)
                   .def_property_readonly("options", &Nccl::getBackendOptions)
#if TORCH_AT_LEAST(2, 6)
                   .def_property_readonly("uid", [](Nccl& self) { return self.getGroupUid(); })
#endif
                   .def("eager_connect_single_device", &Nccl::eagerConnectSingleDevice);
  // Dynamic: what only NCCL reads (config, split_from, split_color) may be set, and changes nothing.
  py::class_<Nccl::Options, c10::intrusive_ptr<Nccl::Options>, c10d::Backend::Options>(group, "Options", py::dynamic_attr())
      .def(py::init<bool>(), py::arg("is_high_priority_stream") = false)
      .def_readwrite("is_high_priority_stream", &Nccl::Options::is_high_priority_stream);
}
