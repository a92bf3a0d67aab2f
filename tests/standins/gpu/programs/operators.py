import torch, torch.nn as nn, traceback, contextlib, os, warnings

warnings.simplefilter("ignore")
bad = 0


def case(f):
    global bad
    try:
        f()
    except BaseException as e:
        bad += 1
        print("FAIL", f.__name__, type(e).__name__, str(e).splitlines()[0][:300])
        if os.environ.get("TB"):
            traceback.print_exc()
    return f


@case
def dataparallel():
    m = nn.DataParallel(nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(8), nn.Linear(8, 2))).cuda()
    out = m(torch.randn(8, 8).cuda())
    assert out.device.index == 0
    out.sum().backward()
    assert m.module[0].weight.grad is not None
    m = nn.DataParallel(nn.Linear(8, 8).cuda(), device_ids=[0, 1])
    m(torch.randn(5, 8)).sum().backward()


@case
def amp():
    m = (
        nn.Sequential(
            nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 4)
        )
        .cuda()
        .to(memory_format=torch.channels_last)
    )
    o = torch.optim.SGD(m.parameters(), 0.1)
    s = torch.cuda.amp.GradScaler()
    for dt in (torch.float16, torch.bfloat16):
        x = torch.randn(2, 3, 8, 8, device="cuda").contiguous(memory_format=torch.channels_last)
        with torch.autocast("cuda", dtype=dt):
            y = m(x)
            assert y.dtype == dt, y.dtype
            l = nn.functional.cross_entropy(y, torch.tensor([0, 1], device="cuda"))
            assert l.dtype == torch.float32
        o.zero_grad()
        s.scale(l).backward()
        s.unscale_(o)
        nn.utils.clip_grad_norm_(m.parameters(), 1.0)
        s.step(o)
        s.update()
    with torch.cuda.amp.autocast():
        assert (torch.ones(2, 2).cuda() @ torch.ones(2, 2).cuda()).dtype == torch.float16
    before = s.get_scale()
    o.zero_grad()
    (m(x).sum() * float("inf")).backward()
    m[0].weight.grad.fill_(float("inf"))
    s.step(o)
    s.update()
    assert s.get_scale() < before, (before, s.get_scale())
    with torch.autocast("cuda"):
        assert torch.is_autocast_enabled("cuda")
        assert torch.get_autocast_dtype("cuda") == torch.float16
    a = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True).cuda()
    with torch.autocast("cuda", dtype=torch.bfloat16):
        a(torch.randn(2, 4, 16).cuda()).sum().backward()
    l = nn.LSTM(8, 8).cuda()
    with torch.autocast("cuda"):
        l(torch.randn(3, 2, 8).cuda())[0].sum().backward()


@case
def half_everything():
    m = (
        nn.Sequential(
            nn.Conv2d(3, 8, 3),
            nn.GroupNorm(2, 8),
            nn.GELU(),
            nn.Upsample(scale_factor=2),
            nn.Flatten(),
            nn.LazyLinear(4),
            nn.LayerNorm(4),
            nn.Softmax(-1),
        )
        .half()
        .cuda()
    )
    m(torch.randn(1, 3, 6, 6).half().cuda()).sum().backward()
    m = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True).cuda().bfloat16()
    m(torch.randn(2, 4, 16).cuda().bfloat16()).sum().backward()


@case
def devices():
    x = torch.zeros(2).to(0)
    assert x.device == torch.device("cuda:0") and x.is_cuda and x.get_device() == 0
    assert x.type() == "torch.cuda.FloatTensor", x.type()
    with torch.device("cuda:1"):
        assert torch.ones(1).device.index == 1
        assert nn.Linear(1, 1).weight.device.index == 1
    torch.set_default_device("cuda")
    assert torch.rand(1).is_cuda
    torch.randperm(3)
    torch.set_default_device(None)
    assert torch.tensor(1, device=torch.device("cuda", 1)).device.index == 1
    torch.cuda.set_device("cuda:1")
    assert torch.zeros(1).cuda().device.index == 1
    torch.cuda.set_device(torch.device("cuda:0"))
    x = torch.cuda.FloatTensor(2)
    assert x.is_cuda
    torch.cuda.LongTensor([1, 2])
    assert isinstance(torch.zeros(1).cuda(), torch.cuda.FloatTensor)
    torch.zeros(2).type("torch.cuda.HalfTensor")
    torch.zeros(2, device="cuda").new_zeros(3).cpu().numpy()
    torch.from_numpy(__import__("numpy").ones(2)).cuda()
    with torch.cuda.device_of(torch.ones(1, device="cuda:1")):
        assert torch.cuda.current_device() == 1
    import copy, pickle

    copy.deepcopy(nn.Linear(1, 1).cuda())
    pickle.loads(pickle.dumps(torch.ones(2).cuda()))
    repr(torch.ones(2).cuda())
    try:
        torch.ones(2).cuda().numpy()
        raise SystemError("numpy of cuda")
    except TypeError as e:
        assert "can't convert cuda:0 device type tensor to numpy" in str(e), e
    assert torch.get_device_module("cuda") is torch.cuda
    torch.empty(2, device="cuda").is_pinned()
    torch.zeros(3, device="cuda").to("cpu", non_blocking=True)
    torch.ones(2, device="cuda:0").to("cuda:1")
    torch.ones(2, device="cuda:0").copy_(torch.ones(2, device="cuda:1"))
    torch.cuda.can_device_access_peer(0, 1)
    torch.set_default_tensor_type(torch.cuda.FloatTensor)
    assert torch.ones(1).is_cuda
    torch.set_default_tensor_type(torch.FloatTensor)


@case
def queries():
    c = torch.cuda
    c.init()
    assert c.is_initialized()
    c.get_arch_list()
    c.get_gencode_flags()
    c.is_bf16_supported()
    c.get_device_properties("cuda:1").total_memory
    c.get_device_properties(0).multi_processor_count
    print(c.get_device_properties(0))
    c.get_device_name()
    c.get_device_name(1)
    c.get_device_capability()
    c.empty_cache()
    c.ipc_collect()
    c.synchronize(1)
    c.memory_summary()
    c.memory_stats()["allocated_bytes.all.peak"]
    c.memory_reserved()
    c.max_memory_reserved()
    c.reset_peak_memory_stats()
    c.reset_max_memory_allocated()
    c.mem_get_info()
    c.utilization if False else None
    c.nvtx.range_push("x")
    c.nvtx.range_pop()
    c.nvtx.mark("a")
    with c.nvtx.range("x"):
        pass
    c.is_current_stream_capturing()
    torch.version.cuda
    torch.backends.cudnn.version()
    torch.backends.cudnn.enabled
    torch.backends.cudnn.benchmark = True
    torch.backends.cuda.matmul.allow_tf32 = True
    torch.set_float32_matmul_precision("high")
    torch.backends.cuda.enable_flash_sdp(True)
    torch.use_deterministic_algorithms(False)
    torch.backends.cuda.flash_sdp_enabled()
    torch.cuda.nccl.version()
    torch.distributed.is_nccl_available()
    torch.cuda.device_count()
    torch.backends.cudnn.is_available()
    torch.cuda.current_blas_handle
    torch.accelerator.memory_allocated() if hasattr(torch.accelerator, "memory_allocated") else None
    torch.accelerator.synchronize()
    torch.accelerator.current_stream()
    torch.accelerator.set_device_index(1)
    assert torch.cuda.current_device() == 1
    torch.accelerator.set_device_index(0)
    torch.cuda.set_per_process_memory_fraction(0.5, 1)


@case
def memory_env():
    torch.cuda.memory._set_allocator_settings("expandable_segments:True")
    torch.cuda.memory.get_allocator_backend()


@case
def utilization():
    for f in (
        torch.cuda.utilization,
        torch.cuda.memory_usage,
        torch.cuda.temperature,
        torch.cuda.power_draw,
        torch.cuda.clock_rate,
    ):
        try:
            f()
        except (ModuleNotFoundError, NotImplementedError, RuntimeError) as e:
            print("  ", f.__name__, type(e).__name__, e)


@case
def streams():
    s = torch.cuda.Stream()
    e = torch.cuda.Event()
    d = torch.cuda.default_stream()
    s.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(s):
        x = torch.ones(4, device="cuda")
        x.record_stream(s)
        e.record()
        assert torch.cuda.current_stream() == s
    torch.cuda.current_stream().wait_event(e)
    torch.cuda.current_stream().wait_stream(s)
    assert s.query() and e.query()
    s.synchronize()
    e.synchronize()
    e2 = s.record_event()
    s.wait_event(e2)
    d.synchronize()
    assert torch.cuda.current_stream() == d
    with torch.cuda.stream(torch.cuda.Stream(device="cuda:1", priority=-1)):
        assert torch.cuda.current_device() == 1
    assert torch.cuda.current_device() == 0
    torch.Stream("cuda")
    torch.Event("cuda")
    str(s)
    str(e)
    hash(s)
    s.cuda_stream
    torch.cuda.ExternalStream(s.cuda_stream)
    torch.cuda.Stream.priority_range()
    a = torch.cuda.Event(enable_timing=True)
    b = torch.cuda.Event(enable_timing=True)
    a.record(s)
    b.record(s)
    a.elapsed_time(b)
    with torch.cuda.stream(None):
        pass
    torch.cuda.set_stream(s)
    torch.cuda.set_stream(d)


@case
def rng():
    torch.cuda.manual_seed_all(1)
    torch.cuda.seed()
    torch.cuda.initial_seed()
    s = torch.cuda.get_rng_state_all()
    torch.cuda.set_rng_state_all(s)
    torch.cuda.get_rng_state("cuda:1")
    torch.cuda.set_rng_state(s[1], 1)
    with torch.random.fork_rng(devices=[0]):
        torch.rand(1, device="cuda")
    with torch.random.fork_rng():
        torch.rand(1, device="cuda")
    g = torch.Generator(device="cuda:1")
    g.manual_seed(2)
    torch.randn(2, generator=g, device="cuda:1")
    st = g.get_state()
    g.set_state(st)
    torch.randperm(4, generator=torch.Generator("cuda"), device="cuda")
    torch.multinomial(torch.ones(4, device="cuda"), 2)
    torch.ones(4, device="cuda").bernoulli_()
    torch.bernoulli(torch.ones(3, device="cuda") / 2, generator=torch.Generator("cuda"))
    torch.normal(0.0, 1.0, (2,), device="cuda")
    torch.rand_like(torch.ones(2, device="cuda"))
    torch.empty(2, device="cuda").exponential_()
    torch.randint(3, (2,), device="cuda")
    torch.cuda.default_generators[0].manual_seed(1)
    torch.manual_seed(7)
    a = torch.rand(2, device="cuda")
    torch.manual_seed(7)
    assert torch.equal(a, torch.rand(2, device="cuda"))
    g.seed()
    g.initial_seed()
    g.clone_state()
    nn.Dropout(0.5)(torch.ones(4, device="cuda"))
    nn.RReLU()(torch.ones(3, device="cuda"))
    try:
        torch.randn(2, generator=torch.Generator(), device="cuda")
        raise SystemError("no refusal")
    except RuntimeError as e:
        assert "Expected a 'cuda' device type for generator but found 'cpu'" in str(e), e


@case
def pinned():
    from torch.utils.data import DataLoader, TensorDataset

    for (x,) in DataLoader(
        TensorDataset(torch.ones(8, 2)), 2, pin_memory=True, num_workers=2, persistent_workers=True, prefetch_factor=2
    ):
        assert x.is_pinned()
        x.cuda(non_blocking=True)
    p = torch.empty(4, pin_memory=True)
    assert p.is_pinned()
    p.copy_(torch.ones(4, device="cuda"), non_blocking=True)
    torch.ones(3).pin_memory("cuda")
    torch.tensor([1.0], pin_memory=True)
    for (x,) in DataLoader(TensorDataset(torch.ones(8, 2)), 2, pin_memory=True, pin_memory_device="cuda:0"):
        pass


@case
def checkpointing():
    from torch.utils.checkpoint import checkpoint, checkpoint_sequential

    l = nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.5), nn.Linear(4, 4)).cuda()
    x = torch.randn(2, 4, device="cuda", requires_grad=True)
    for r in (True, False):
        checkpoint(l, x, use_reentrant=r).sum().backward()
    with torch.autocast("cuda"):
        checkpoint(l, x, use_reentrant=False).sum().backward()
    with torch.autograd.graph.save_on_cpu(pin_memory=True):
        l(x).sum().backward()
    with torch.autograd.set_detect_anomaly(True):
        l(x).sum().backward()


@case
def optimizers():
    for make in (
        lambda p: torch.optim.Adam(p, fused=True),
        lambda p: torch.optim.AdamW(p, foreach=True),
        lambda p: torch.optim.Adam(p, capturable=True),
        lambda p: torch.optim.SGD(p, 0.1, momentum=0.9, fused=True),
        lambda p: torch.optim.RMSprop(p),
        lambda p: torch.optim.Adagrad(p),
        lambda p: torch.optim.Adadelta(p),
        lambda p: torch.optim.LBFGS(p),
        lambda p: torch.optim.NAdam(p),
        lambda p: torch.optim.RAdam(p),
        lambda p: torch.optim.Rprop(p),
        lambda p: torch.optim.Adamax(p),
        lambda p: torch.optim.ASGD(p),
        lambda p: torch.optim.Adafactor(p),
    ):
        m = nn.Linear(3, 3).cuda()
        o = make(m.parameters())

        def c():
            o.zero_grad()
            l = m(torch.ones(2, 3).cuda()).sum()
            l.backward()
            return l

        o.step(c)
        o.step(c)
        o.load_state_dict(o.state_dict())
    from torch.optim.swa_utils import AveragedModel

    AveragedModel(nn.Linear(2, 2).cuda()).update_parameters(nn.Linear(2, 2).cuda())
    AveragedModel(
        nn.Linear(2, 2).cuda(), multi_avg_fn=torch.optim.swa_utils.get_ema_multi_avg_fn(0.9)
    ).update_parameters(nn.Linear(2, 2).cuda())
    e = nn.Embedding(10, 3, sparse=True).cuda()
    o = torch.optim.SparseAdam(e.parameters())
    e(torch.tensor([1, 2]).cuda()).sum().backward()
    o.step()


@case
def sparse():
    i = torch.tensor([[0, 1], [1, 0]]).cuda()
    s = torch.sparse_coo_tensor(i, torch.ones(2).cuda(), (2, 2))
    s.to_dense()
    torch.sparse.mm(s, torch.ones(2, 2).cuda())
    s.coalesce()
    torch.ones(2, 2).to_sparse().cuda()
    torch.ones(2, 2).cuda().to_sparse_csr()


@case
def attention():
    from torch.nn.attention import sdpa_kernel, SDPBackend

    q = torch.randn(1, 2, 4, 8, device="cuda", dtype=torch.float16, requires_grad=True)
    for b in (
        SDPBackend.MATH,
        SDPBackend.FLASH_ATTENTION,
        SDPBackend.EFFICIENT_ATTENTION,
        [SDPBackend.FLASH_ATTENTION, SDPBackend.MATH],
    ):
        with sdpa_kernel(b):
            nn.functional.scaled_dot_product_attention(q, q, q, is_causal=True).sum().backward()
    nn.MultiheadAttention(8, 2).cuda().eval()(
        torch.ones(2, 1, 8).cuda(), torch.ones(2, 1, 8).cuda(), torch.ones(2, 1, 8).cuda()
    )
    nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), 2).cuda().eval()(
        torch.ones(2, 3, 8).cuda(),
        src_key_padding_mask=torch.tensor([[False, False, True], [False, True, True]]).cuda(),
    )
    nn.Transformer(8, 2, 1, 1, 16).cuda()(torch.ones(3, 1, 8).cuda(), torch.ones(3, 1, 8).cuda())


@case
def layers():
    for m, s in (
        (nn.Conv1d(2, 2, 3), (1, 2, 8)),
        (nn.Conv3d(1, 2, 3), (1, 1, 5, 5, 5)),
        (nn.ConvTranspose2d(2, 2, 2), (1, 2, 4, 4)),
        (nn.BatchNorm1d(2), (4, 2)),
        (nn.InstanceNorm2d(2), (1, 2, 4, 4)),
        (nn.GroupNorm(1, 2), (1, 2, 4)),
        (nn.LocalResponseNorm(2), (1, 2, 4, 4)),
        (nn.PReLU(), (2, 2)),
        (nn.Softplus(), (2,)),
        (nn.Bilinear(2, 2, 2), None),
        (nn.AvgPool2d(2), (1, 1, 4, 4)),
        (nn.AdaptiveMaxPool2d(2), (1, 1, 4, 4)),
        (nn.LPPool2d(2, 2), (1, 1, 4, 4)),
        (nn.FractionalMaxPool2d(2, output_size=2), (1, 1, 5, 5)),
        (nn.PixelShuffle(2), (1, 4, 2, 2)),
        (nn.Fold((4, 4), 2, stride=2), (1, 4, 4)),
        (nn.Unfold(2), (1, 1, 4, 4)),
        (nn.GRU(3, 3, 2, bidirectional=True), (2, 1, 3)),
        (nn.RNN(3, 3), (2, 1, 3)),
        (nn.LSTM(3, 3, proj_size=2), (2, 1, 3)),
        (nn.RMSNorm(4), (2, 4)),
        (nn.Hardswish(), (3,)),
        (nn.GLU(), (2, 4)),
        (nn.EmbeddingBag(4, 2), "i"),
        (nn.CircularPad2d(1), (1, 1, 3, 3)),
        (nn.ReflectionPad2d(1), (1, 1, 3, 3)),
        (nn.Upsample(scale_factor=2, mode="bilinear"), (1, 1, 3, 3)),
        (nn.MaxUnpool2d(2), None),
        (nn.AlphaDropout(), (3,)),
        (nn.Dropout2d(), (1, 2, 3, 3)),
        (nn.FeatureAlphaDropout(), (1, 2, 3, 3)),
        (nn.utils.parametrizations.weight_norm(nn.Linear(3, 3)), (2, 3)),
        (nn.utils.parametrizations.spectral_norm(nn.Linear(3, 3)), (2, 3)),
    ):
        try:
            m = m.cuda()
            if s is None:
                continue
            x = (
                torch.tensor([[0, 1], [2, 3]]).cuda()
                if s == "i"
                else torch.randn(*s, device="cuda", requires_grad=True)
            )
            y = m(x)
            y = y[0] if isinstance(y, tuple) else y
            y.sum().backward()
        except Exception as e:
            raise type(e)(f"{m}: {e}") from e
    for l, t in (
        (nn.CTCLoss(), None),
        (nn.NLLLoss(), 1),
        (nn.BCEWithLogitsLoss(), None),
        (nn.KLDivLoss(), None),
        (nn.HuberLoss(), None),
        (nn.MultiMarginLoss(), 1),
        (nn.CrossEntropyLoss(label_smoothing=0.1, weight=torch.ones(4).cuda()), 1),
        (nn.TripletMarginLoss(), None),
        (nn.CosineEmbeddingLoss(), None),
    ):
        x = torch.randn(3, 4, device="cuda", requires_grad=True)
        if t:
            l(x, torch.tensor([0, 1, 2]).cuda()).backward()
    lp = torch.randn(5, 2, 4, device="cuda").log_softmax(2).requires_grad_()
    nn.CTCLoss()(lp, torch.tensor([[1, 2], [1, 3]]).cuda(), torch.tensor([5, 5]), torch.tensor([2, 2])).backward()
    nn.CTCLoss()(
        lp, torch.tensor([[1, 2], [1, 3]]).cuda(), torch.tensor([5, 5]).cuda(), torch.tensor([2, 2]).cuda()
    ).backward()
    r = nn.LSTM(3, 4, batch_first=True).cuda()
    p = nn.utils.rnn.pack_padded_sequence(torch.randn(2, 3, 3).cuda(), torch.tensor([3, 2]), batch_first=True)
    o, _ = r(p)
    nn.utils.rnn.pad_packed_sequence(o, batch_first=True)[0].sum().backward()
    nn.functional.grid_sample(torch.randn(1, 1, 4, 4).cuda(), torch.randn(1, 2, 2, 2).cuda())
    nn.functional.affine_grid(torch.randn(1, 2, 3).cuda(), (1, 1, 2, 2))
    nn.functional.gumbel_softmax(torch.randn(2, 3).cuda())
    nn.functional.interpolate(torch.randn(1, 1, 4, 4).cuda(), size=2, mode="bicubic", antialias=True)


@case
def tensors():
    x = torch.randn(4, 4, device="cuda")
    torch.fft.fft(x).abs()
    torch.linalg.svd(x)
    torch.linalg.inv(x)
    torch.linalg.eigh(x @ x.T)
    torch.linalg.cholesky(x @ x.T + 9 * torch.eye(4, device="cuda"))
    x.sort()
    x.topk(2)
    x.unique()
    x.nonzero()
    x[x > 0]
    x[torch.tensor([0, 1])]
    x[torch.tensor([0, 1]).cuda()] = 1
    x.index_select(0, torch.tensor([0]).cuda())
    x.cumsum(0)
    x.histc()
    torch.bincount(torch.tensor([1, 2]).cuda())
    torch.where(x > 0, x, 0.0)
    x.masked_fill_(x > 0, 1)
    torch.cat([x, x])
    torch.stack([x, x])
    torch.einsum("ij,jk", x, x)
    x.view(-1).resize_(3)
    torch.arange(3, device="cuda")
    torch.linspace(0, 1, 3, device="cuda")
    torch.eye(3, device="cuda")
    x.item if 0 else None
    x.tolist()
    x[0, 0].item()
    float(x[0, 0])
    bool((x == x).all())
    x += 1
    x.t_()
    torch.tril(x)
    torch.cdist(x, x)
    x.quantile(0.5)
    x.median()
    torch.searchsorted(torch.arange(3.0, device="cuda"), x)
    torch.bucketize(x, torch.arange(3.0).cuda())
    torch.meshgrid(x[0], x[1], indexing="ij")
    torch.view_as_complex(torch.ones(2, 2).cuda())
    torch.complex(x, x)
    x.to(torch.float8_e4m3fn)
    x.half()
    torch.split(x, 2)
    x.unfold(0, 2, 1)
    torch.tensordot(x, x, 1)
    x.expand(2, 4, 4).contiguous()
    torch.vmap(lambda a: a.sum())(x)
    torch.func.grad(lambda a: a.sum())(x)
    torch.nn.utils.parameters_to_vector(nn.Linear(2, 2).cuda().parameters())
    torch.equal(x, x)
    torch.allclose(x, x)
    torch.testing.assert_close(x, x)
    x.is_contiguous()
    x.storage().data_ptr()
    x.untyped_storage().nbytes()
    x.data_ptr()
    x.element_size()
    x.share_memory_()
    x.map_ if 0 else None
    torch.isin(x, x)
    torch.normal(x, x.abs())
    torch.poisson(x.abs())
    torch.nan_to_num(x)
    torch.logsumexp(x, 0)
    torch.clamp(x, min=torch.zeros(4, 4).cuda())
    torch.addmm(x, x, x)
    torch.baddbmm(torch.ones(1, 4, 4).cuda(), torch.ones(1, 4, 4).cuda(), torch.ones(1, 4, 4).cuda())
    torch.nested.nested_tensor([x[0], x[1]])
    torch.ops.aten._foreach_add([x], [x])
    torch.tensor([1, 2]).cuda().repeat_interleave(torch.tensor([1, 2]).cuda())
    x @ 2 if 0 else None
    2 * x
    x / torch.tensor(2.0)
    torch.tensor(2.0) * x
    torch.tensor(2.0) + torch.tensor(1.0, device="cuda")
    a = torch.ones(2, device="cuda")
    a.data = torch.zeros(3, device="cuda")
    a.set_(torch.ones(4, device="cuda"))
    a.untyped_storage().resize_(0)
    torch.utils.dlpack.to_dlpack(torch.ones(2).cuda())


@case
def dlpack_iface():
    assert torch.ones(2).cuda().__cuda_array_interface__["shape"] == (2,)


@case
def jit():
    f = torch.jit.script(nn.Sequential(nn.Linear(2, 2), nn.ReLU()).cuda())
    f(torch.ones(1, 2).cuda()).sum().backward()
    torch.jit.trace(nn.Linear(2, 2).cuda(), torch.ones(1, 2).cuda())(torch.ones(1, 2).cuda())
    f.save("j.pt")
    torch.jit.load("j.pt", map_location="cuda:1")(torch.ones(1, 2).cuda(1))


@case
def profiler():
    from torch.profiler import profile, ProfilerActivity, record_function, schedule

    with profile(
        activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA],
        record_shapes=True,
        profile_memory=True,
        schedule=schedule(wait=0, warmup=1, active=1),
    ) as p:
        for _ in range(2):
            torch.ones(2).cuda() + 1
            p.step()
    p.key_averages().table(sort_by="cuda_time_total", row_limit=3)
    with torch.autograd.profiler.profile(use_cuda=True):
        torch.ones(2).cuda() + 1
    with torch.autograd.profiler.emit_nvtx():
        torch.ones(2).cuda() + 1
    torch.cuda.profiler.start()
    torch.cuda.profiler.stop()
    torch.cuda.cudart().cudaProfilerStart()


@case
def compiled():
    m = torch.compile(nn.Linear(2, 2).cuda(), mode="max-autotune")
    m(torch.ones(1, 2).cuda()).sum().backward()

    @torch.compile
    def f(x):
        return x.sin()

    f(torch.ones(2).cuda())
    nn.Linear(2, 2).cuda().compile()
    torch.compiler.is_compiling()
    torch.compiler.cudagraph_mark_step_begin()
    torch._dynamo.config.suppress_errors = True
    l = nn.Linear(2, 2).cuda()
    l.compile()
    l(torch.ones(1, 2).cuda())


@case
def custom_autograd():
    class F(torch.autograd.Function):
        @staticmethod
        @torch.amp.custom_fwd(device_type="cuda", cast_inputs=torch.float16)
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x * 2

        @staticmethod
        @torch.amp.custom_bwd(device_type="cuda")
        def backward(ctx, g):
            return g * 2

    with torch.autocast("cuda"):
        F.apply(torch.ones(2, device="cuda", requires_grad=True)).sum().backward()


@case
def graphs():
    for f in (
        lambda: torch.cuda.CUDAGraph(),
        lambda: torch.cuda.graph_pool_handle(),
        lambda: torch.cuda.make_graphed_callables(nn.Linear(1, 1).cuda(), (torch.ones(1, 1).cuda(),)),
        lambda: torch.cuda.MemPool(),
    ):
        try:
            f()
            print("   not refused", f)
        except NotImplementedError as e:
            pass


@case
def unknown():
    for n in ("no_such",):
        try:
            getattr(torch.cuda, n)
            raise SystemError("got it")
        except AttributeError as e:
            print("  ", e)


@case
def oom():
    torch.cuda.set_per_process_memory_fraction(1e-5, 0)
    try:
        torch.empty(100 << 20, device="cuda:0")
        raise SystemError("no oom")
    except torch.cuda.OutOfMemoryError:
        pass
    torch.empty(1 << 20, device="cuda:1")
    torch.cuda.set_per_process_memory_fraction(1.0, 0)


@case
def mp_share():
    import torch.multiprocessing as mp

    try:
        mp.get_context("spawn").SimpleQueue().put(torch.ones(1).cuda())
    except Exception as e:
        print("  share:", type(e).__name__, str(e)[:200])


@case
def saving():
    torch.save(nn.Linear(2, 2).cuda().state_dict(), "s.pt")
    torch.load("s.pt")
    torch.load("s.pt", map_location=lambda s, l: s)
    torch.load("s.pt", map_location=lambda s, l: s.cuda(1))
    torch.load("s.pt", map_location={"cuda:0": "cuda:1"})
    torch.load("s.pt", map_location=torch.device("cpu"))
    torch.load("s.pt", map_location="cuda", weights_only=False)
    torch.load("s.pt", mmap=True, map_location="cuda:1")
    torch.save(torch.ones(2).cuda(), "o.pt", _use_new_zipfile_serialization=False)
    torch.load("o.pt")


print("bad", bad)
