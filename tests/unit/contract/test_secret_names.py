"""What is taken for a secret by its name, and what is not."""

from __future__ import annotations

from tests.support.cases import each
from trainjob.contract.programs.secret_names import is_secret_file, is_secret_variable

SECRET_VARIABLES = """
    GCP_SA_KEY DOCKER_AUTH DOCKER_AUTH_CONFIG ROBOFLOW_KEY NPM_AUTH COMET_KEY someServiceKey
    DB_PASS PGPASSWORD GH_PAT DATABASE_URL JWT HF_TOKEN WANDB_API_KEY wandbApiKey githubToken my_password TOKEN_2
    AWS_SECRET_ACCESS_KEY AWS_ACCESS_KEY_ID AWS_SESSION_TOKEN OPENAI_API_KEY ANTHROPIC_API_KEY COMET_API_KEY
    GITHUB_TOKEN HUGGING_FACE_HUB_TOKEN API_TOKEN TOKEN PASSWORD CLIENT_SECRET SECRET_KEY JWT_SECRET PRIVATE_KEY
    ENCRYPTION_KEY SSH_KEY MYSQL_PWD SSHPASS SMTP_PASS DOCKER_PASSWORD CREDENTIALS BASIC_AUTH SENTRY_DSN
    SLACK_WEBHOOK_URL REDIS_URL MONGODB_URI SQLALCHEMY_DATABASE_URI AZURE_STORAGE_KEY
    LDAP_BIND_PW DB_PW AIRTABLE_PAT ATLASSIAN_PAT RCLONE_CONFIG_PASS QINIU_SK STRIPE_SK TENCENT_SECRETKEY
    ALIYUN_ACCESSKEYSECRET GITHUB_APP_PEM OSS_ACCESSKEY
    AZURE_STORAGE_CONNECTION_STRING WANDB_API_KEY_PROD
"""
HARMLESS_VARIABLES = """
    USE_AUTH IMAGE_KEY PUBLIC_KEY KEY_SIZE MONKEY AUTH_URL KEYBOARD
    TOKENIZERS_PARALLELISM MAX_TOKENS NUM_TOKENS KEYBOARD PYTHONPATH PATH HOME PWD OLDPWD PAD_TOKEN EOS_TOKEN
    PER_TOKEN MASK_TOKEN TOKEN_BUDGET TOKEN_DROPOUT TOKENIZER TOKENIZER_PATH HF_TOKEN_PATH HF_HOME HF_HUB_OFFLINE
    MASK PW SK TASK_SKEW CERT_PEM ACCESSKEYS KEYPAIR
    SECRETS_FILE PASSWORD_FILE GOOGLE_APPLICATION_CREDENTIALS SORT_KEY PRIMARY_KEY LABEL_KEY CACHE_KEY KEY KEYS
    HOTKEY MONKEY_PATCH FORWARD_PASS TWO_PASS PASS_THROUGH BYPASS COMPASS PASSES FILE_PAT PATTERN PATIENCE AUTHOR
    AUTHORS SSH_AUTH_SOCK XAUTHORITY DATA_URL TRAIN_URL MLFLOW_TRACKING_URI DB_NAME DATABASE MASTER_ADDR MASTER_PORT
    WORLD_SIZE NCCL_DEBUG OMP_NUM_THREADS CUDA_VISIBLE_DEVICES WANDB_PROJECT WANDB_MODE TORCH_HOME CREDIT SECRETARY
"""
SECRET_FILES = """
    .env .env.local deploy/.ENV .env/inside .envrc .netrc _netrc .npmrc .yarnrc.yml .pypirc .git-credentials
    .dockercfg .aws/credentials x/.aws/config .azure/tokens.json .config/gcloud/x.db .config/gh/hosts.yml
    a/.docker/config.json .kube/config kubeconfig.yaml .ssh/config id_rsa id_ed25519.old deploy_rsa server.pem
    tls/private.key cert.p12 cert.pfx server.jks keys.kdbx token token.txt .token hf_token github_token
    api_token.txt wandb_api_key.txt .huggingface/token service-account.json prod-service-account-key.json
    application_default_credentials.json client_secret_1.json credentials credentials.json credentials.csv
    kaggle.json secrets.yaml .streamlit/secrets.toml secret.json .secrets terraform.tfstate terraform.tfstate.backup
    prod.tfvars .terraformrc .vault-token .boto .s3cfg rclone.conf .pgpass .my.cnf .htpasswd .bash_history
    .python_history .databrickscfg .comet.config .env/lib/python/site.py
"""
HARMLESS_FILES = """
    train.py secrets.py src/token.py src/token/model.py src/token/model.yaml configs/credentials.py password.py
    tokenizer.json tokens.txt tokenizer_config.json special_tokens_map.json added_tokens.json
    configs/mask_token.yaml token_dropout.yaml vocab.txt keyboard.py environment.py environment.yml my.environment
    config.json docker/config.json .docker/Dockerfile .dockerignore .github/workflows/ci.yml .gitignore
    .pre-commit-config.yaml data/keys.csv kube/job.yaml terraform/main.tf secret_sharing/train.py docs/api_key.md
    metrics_history.csv train_history requirements.txt setup.cfg
"""


@each("name", SECRET_VARIABLES.split())
def test_a_variable_that_is_probably_a_secret(name: str) -> None:
    assert is_secret_variable(name)


@each("name", HARMLESS_VARIABLES.split())
def test_a_variable_of_every_day(name: str) -> None:
    assert not is_secret_variable(name)


@each("path", SECRET_FILES.split())
def test_a_file_that_is_probably_a_secret(path: str) -> None:
    assert is_secret_file(path)
    assert is_secret_file(f"sub folder/{path.upper()}")


@each("path", HARMLESS_FILES.split())
def test_a_file_of_every_day(path: str) -> None:
    assert not is_secret_file(path)
