"""Which words of shell are secrets: those that are must be found, and right scripts not accused."""

from __future__ import annotations

from tests.support.cases import each
from trainjob.contract.programs.secrets_in_shell import secrets_in

KEY = "0123456789abcdef0123456789abcdef01234567"


@each(
    "text",
    [
        "huggingface-cli login\naccelerate launch train.py",
        "wandb login\ntorchrun train.py",
        "#!/bin/bash --login\ntorchrun train.py",
        "python train.py --use_auth_token\naccelerate launch train.py",
        "ray start --head --redis-password=5241590000000000",
        "python train.py --token_budget 100000000 --group_key=site_2024 --tokenizer tok/spm_32000.model",
        "# login required",
        "# login credentials are in ~/.netrc",
        "# --wandb_api_key STRING",
        'wandb login || echo "wandb login unsuccessful"',
        'echo "Usage: $0 --token TOKEN --password PASSWORD FILE"',
        "python -c \"from huggingface_hub import login; login(token=os.environ['HF_TOKEN'])\"",
        "python - <<EOF\nf(p, token=token)\nf(hf_token=token, db_password=password)\nf(api_key=args.api_key)\nEOF",
        "python - <<EOF\ndb_password=args.password\nf(db_password=os.environ['X'], api_key=get1(x))\nEOF",
        "REDIS_URL=redis://localhost:6379/0",
        "python train.py --db-url sqlite:///study.db",
        "MONGO_URL=mongodb://localhost:27017",
        "--instance_token dogsks",
        "--placeholder_token sks1a",
        "--initializer_token=statue",
        "--newline_token 13000",
        "--video_token 151656",
        "--video_token_id 151656",
        "--ckpt-key model_v2",
        "EXPERIMENT_KEY=exp_001",
        "SORTING_KEY=mtime",
        "SSH_KEY=id_rsa",
        "SSH_KEY=id_ed25519",
        "PRIVATE_KEY=keys.pem",
        "CREDENTIALS=credentials.json",
        "SCRIPT_PWD=scripts",
        'TOKEN="`cat f`"',
        'HF_TOKEN="`cat f`"',
        "HF_TOKEN=hf_your_token",
        "WANDB_API_KEY=offline",
        "OPENAI_API_KEY=fake-key",
        "SLURM_AUTH=auth/munge",
        "aws sso login --profile research-team",
        "ssh login node12345",
        "docker login -u me --password-stdin reg.io",
        'docker login -u me -p "$PASSWORD" reg.io',
        'echo "$KEY" | wandb login',
        "wandb login <<< $KEY",
        "export WANDB_API_KEY=${WANDB_API_KEY:-}",
        "export HF_TOKEN=${HF_TOKEN:-$TOKEN}",
        "export KEY=${1:-train}",
    ],
)
def test_a_right_script_is_not_accused(text: str) -> None:
    assert secrets_in(text) == frozenset()


@each(
    ("text", "secret"),
    [
        (f"export WANDB_API_KEY=${{WANDB_API_KEY:-{KEY}}}", KEY),
        (f'export WANDB_API_KEY="${{WANDB_API_KEY:-{KEY}}}"', KEY),
        (f"export WANDB_API_KEY=${{WANDB_API_KEY:-'{KEY}'}}", KEY),
        (f"export HF_TOKEN=${{TOKEN-{KEY}}}", KEY),
        (f": ${{HF_TOKEN:={KEY}}}", KEY),
        (f"KEY=$'{KEY}'", KEY),
        (f"WANDB_API_KEY=$'{KEY}'", KEY),
        (f'TOKEN=("{KEY}")', KEY),
        (f"HF_TOKEN=( {KEY} )", KEY),
        (f"echo {KEY} | wandb login", KEY),
        (f"echo -n '{KEY}' | wandb login --relogin", KEY),
        (f"printf '%s\\n' \"{KEY}\" | wandb login", KEY),
        ("echo s3cr3tpw9 | docker login -u me --password-stdin reg.io", "s3cr3tpw9"),
        (f"wandb login <<< {KEY}", KEY),
        (f"wandb login --relogin <<<'{KEY}'", KEY),
        ("docker login -u me -p s3cr3tpw9 reg.io", "s3cr3tpw9"),
        ("podman login --password=s3cr3tpw9 reg.io", "s3cr3tpw9"),
        ("apptainer remote login --username me --password s3cr3tpw9 docker://reg.io", "s3cr3tpw9"),
        ("apptainer registry login -u me -ps3cr3tpw9 oras://reg.io", "s3cr3tpw9"),
        ("REDIS_URL=redis://:hunter2@localhost:6379/0", ":hunter2@"),
        ("DB_PASSWORD=swordfish", "swordfish"),
        ("WEBHOOK_URL=https://hooks.chat.org/services/T0/B1/abc", "https://hooks.chat.org/services/T0/B1/abc"),
    ],
)
def test_a_written_secret_is_found(text: str, secret: str) -> None:
    assert secret in secrets_in(text)


@each("text", ["login ", "login -x ", "echo key | ", "docker login ", "key=", "API_KEY=1", "${A_KEY:-", "KEY='"])
def test_a_hostile_text_takes_a_time_that_grows_with_its_length(text: str) -> None:
    """Hung for minutes on half of this."""
    assert len(secrets_in(text * 4_000)) < 4_000
