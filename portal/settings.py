"""All settings of the portal. Every value that differs between installations is an environment
variable, read by `portal.env`; all others are fixed here."""

from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import psycopg
from csp.constants import NONE, SELF, UNSAFE_INLINE
from psycopg.types.numeric import Int2, Int2Dumper, Int4, Int4Dumper, Int8, Int8Dumper
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

from portal.deploy import production_check
from portal.env import (
    BadSetting,
    code_commit,
    env_bool,
    env_choice,
    env_collector,
    env_country,
    env_database,
    env_int,
    env_list,
    env_mail,
    env_networks,
    env_origin,
    env_secret,
    env_str,
    redis_database,
    redis_of_nodes,
    redis_separate_check,
)
from tenants.platform.stores.redis_servers import PoolByAddress, channels_host

BASE_DIR = Path(__file__).resolve().parent.parent

# --- Identity -------------------------------------------------------------------------------------

PUBLIC_URL = env_origin("PUBLIC_URL", "http://localhost:8000")
PUBLIC_HOST = urlsplit(PUBLIC_URL).hostname or ""
IS_HTTPS = PUBLIC_URL.startswith("https://")
DEBUG = env_bool("DEBUG", default=False)
SECRET_KEY = env_secret("SECRET_KEY")
SECRET_KEY_FALLBACKS = env_list("SECRET_KEY_FALLBACKS")
ALLOWED_HOSTS = [PUBLIC_HOST, *env_list("ALLOWED_HOSTS", "localhost,127.0.0.1,[::1]")]
CSRF_TRUSTED_ORIGINS = [PUBLIC_URL]

# A separate process with its own database role serves operators' pages and calls
# (docs/decisions/operators.md). A web process passes them on to OPERATORS_URL and has no right to them.
SERVES_OPERATORS = env_bool("SERVES_OPERATORS", default=False)
OPERATORS_URL = env_origin("OPERATORS_URL", "") if env_str("OPERATORS_URL", "") else ""
if SERVES_OPERATORS and OPERATORS_URL:
    raise BadSetting("OPERATORS_URL is for web processes, SERVES_OPERATORS for the one it names.")

INSTALLED_APPS = [
    "portal",
    "tenants",
    "billing",
    "allocation",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.messages",
    "django.contrib.postgres",
    "django.contrib.staticfiles",
    "rest_framework",
    "drf_spectacular",
    "drf_spectacular_sidecar",
    "csp",
]

MIDDLEWARE = [
    # First, so that answers of every other middleware are counted.
    "portal.web.measured.MeasuredMiddleware",
    # Before all that answer by themselves, so that their answers have the headers, too.
    "portal.web.policy.PolicyMiddleware",
    "django.middleware.security.SecurityMiddleware",
    # Timelines are large. CSRF tokens are masked per response, so compressed sizes leak nothing.
    "django.middleware.gzip.GZipMiddleware",
    "portal.api.problems.ProblemMiddleware",
    "whitenoise.middleware.WhiteNoiseMiddleware",
    "tenants.web.sessions.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "tenants.web.sessions.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
    "tenants.platform.forms.text.TextMiddleware",
    "tenants.web.address.AddressMiddleware",
    "portal.web.class_names.ClassNamesMiddleware",
    "portal.web.outage.OutageMiddleware",
    "portal.web.clock.ClockMiddleware",
    # Last, so that forwarded requests pass through all middlewares above.
    "portal.web.operators.OperatorsMiddleware",
]

ROOT_URLCONF = "portal.urls"
ASGI_APPLICATION = "portal.asgi.application"
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"

TEMPLATES: list[dict[str, Any]] = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "DIRS": [BASE_DIR / "templates"],
        "APP_DIRS": False,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
                "tenants.web.frame.shell",
                "portal.web.outage.banners",
            ],
            "builtins": [
                "allocation.web.parts.booking_links",
                "allocation.web.parts.horizon_hint",
                "allocation.web.parts.sizes",
                "allocation.web.parts.state_pills",
                "allocation.web.parts.times",
                "tenants.web.parts",
            ],
        },
    }
]

# --- Stores ---------------------------------------------------------------------------------------

_database = env_database()
# Requests that a web process serves at once; each of its threads keeps a database connection.
WEB_THREADS = env_int("WEB_THREADS", 16, low=1, high=200)
# Costly requests (quotes, previews, long pages) that it serves at once next to those, each in a
# process of its own.
COSTLY_WORKERS = env_int("COSTLY_WORKERS", 2, low=1, high=64)

# Processes among which the solver's leader divides a large site whose GPU classes are independent;
# with 1 it decides all of it itself.
SOLVER_WORKERS = env_int("SOLVER_WORKERS", 1, low=1, high=64)
# Where the shards of such a site are decided: here and in those processes, or also by workers that
# take them from a queue at Redis, on any machine. Their answers are awaited for SHARD_SECONDS.
SOLVER_SHARDS = env_choice("SOLVER_SHARDS", {"here": "here", "queue": "queue"}, "here")
SHARD_SECONDS = env_int("SHARD_SECONDS", 100, low=5, high=200)
# Grams of CO2 for a kilowatt-hour at this site; 0: no CO2 is shown.
CARBON_GRAMS_PER_KWH = env_int("CARBON_GRAMS_PER_KWH", 0, low=0, high=2_000)
DATABASES: dict[str, dict[str, Any]] = {
    "default": {
        "ENGINE": "tenants.platform.database",
        "NAME": _database.name,
        "USER": _database.user,
        "PASSWORD": _database.password,
        "HOST": _database.host,
        "PORT": _database.port,
        # A new connection plans all statements again; one that broke is replaced at once.
        "CONN_MAX_AGE": 600,
        "CONN_HEALTH_CHECKS": True,
        "OPTIONS": {
            # A server whose machine lost power is noticed after 25 s, as it notices a client's: a
            # beat or reader that waits for it has no time limit. Local sockets ignore these.
            "connect_timeout": 10,
            "keepalives_idle": 10,
            "keepalives_interval": 5,
            "keepalives_count": 3,
            "tcp_user_timeout": 25_000,
            **_database.options,
            # Repeated statements are parsed and planned once per connection.
            "server_side_binding": True,
            "prepare_threshold": 3,
        },
    }
}

# The server refuses a number that its column cannot hold; in binary it would be truncated.
psycopg.adapters.register_dumper(Int2, Int2Dumper)
psycopg.adapters.register_dumper(Int4, Int4Dumper)
psycopg.adapters.register_dumper(Int8, Int8Dumper)

# One server, three logical databases, so that clearing one never touches another.
_redis_url = env_str("REDIS_URL")
BROKER_REDIS_URL = redis_database(_redis_url, 0)
CHANNELS_REDIS_URL = redis_database(_redis_url, 1)
CACHE_REDIS_URL = redis_database(_redis_url, 2)
# Nodes use a separate server, so that none can fill, slow down or read the portal's own.
_agents_url = redis_separate_check(env_str("AGENTS_REDIS_URL"), _redis_url)
AGENTS_REDIS_URL = redis_database(_agents_url, 0, "AGENTS_REDIS_URL")
# The address of that server for agents. Its user and password are replaced by those of the node's
# account (allocation/services/nodes/redis_accounts.py).
AGENTS_REDIS_PUBLIC_URL = redis_of_nodes("AGENTS_REDIS_PUBLIC_URL", _agents_url)
# Every node's key is derived from this one. A web process does not get it: it passes an agent's
# enrolment on to the operators' process.
AGENTS_MASTER_KEY = "" if OPERATORS_URL else env_secret("AGENTS_MASTER_KEY")

# Each program's watchdog ends it when one of its loops has been silent for so long although the
# servers that it waits for answer; 0: none.
WATCHDOG_SECONDS = env_int("WATCHDOG_SECONDS", 12, low=0, high=3600)
WATCHDOG_SERVERS = {
    "redis": CACHE_REDIS_URL,
    "agents": AGENTS_REDIS_URL,
    "database": env_str("DATABASE_URL"),
}

CACHES = {
    "default": {
        "BACKEND": "django.core.cache.backends.redis.RedisCache",
        # A list, because Django splits a text at the commas between Sentinels.
        "LOCATION": [CACHE_REDIS_URL],
        "OPTIONS": {"pool_class": PoolByAddress, "socket_timeout": 2, "socket_connect_timeout": 2},
        "KEY_PREFIX": "cache",
    }
}
CHANNEL_LAYERS = {
    "default": {
        "BACKEND": "channels_redis.pubsub.RedisPubSubChannelLayer",
        "CONFIG": {
            # A connection that was closed while nothing was sent is noticed by the next message.
            "hosts": [channels_host(CHANNELS_REDIS_URL, retry=Retry(NoBackoff(), 1))],
            "prefix": "live",
        },
    }
}

# --- Client addresses -----------------------------------------------------------------------------

# The proxies whose X-Forwarded-For is trusted; by default none.
TRUSTED_PROXIES = env_networks("TRUSTED_PROXIES")

# --- Sign-in --------------------------------------------------------------------------------------

AUTH_USER_MODEL = "tenants.User"
LOGIN_URL = "/sign-in"
LOGIN_REDIRECT_URL = "/"
CSRF_FAILURE_VIEW = "portal.web.errors.csrf_failed"
LOGOUT_REDIRECT_URL = "/sign-in"
PASSWORD_HASHERS = ["django.contrib.auth.hashers.Argon2PasswordHasher"]
AUTH_PASSWORD_VALIDATORS = [
    {
        "NAME": "django.contrib.auth.password_validation.MinimumLengthValidator",
        "OPTIONS": {"min_length": 10},
    },
    {"NAME": "django.contrib.auth.password_validation.CommonPasswordValidator"},
    {"NAME": "django.contrib.auth.password_validation.UserAttributeSimilarityValidator"},
]
AUTHENTICATION_BACKENDS = ["tenants.web.members.passwords.PasswordBackend"]
SESSION_ENGINE = "tenants.web.sessions"
SESSION_COOKIE_AGE = 12 * 60 * 60
SESSION_COOKIE_HTTPONLY = True
SESSION_COOKIE_SAMESITE = "Lax"
# Browsers send cookies to every port of a host, so two portals on one host need different names.
_cookies = env_str("COOKIE_PREFIX", "portal")
SESSION_COOKIE_SECURE = IS_HTTPS
SESSION_COOKIE_NAME = "__Host-session" if IS_HTTPS else f"{_cookies}-session"
DEVICE_COOKIE_NAME = "__Host-device" if IS_HTTPS else f"{_cookies}-device"
CSRF_COOKIE_HTTPONLY = True
CSRF_COOKIE_SAMESITE = "Lax"
CSRF_COOKIE_SECURE = IS_HTTPS
CSRF_COOKIE_NAME = "__Host-csrf" if IS_HTTPS else f"{_cookies}-csrf"

# --- Security headers -----------------------------------------------------------------------------

SECURE_CONTENT_TYPE_NOSNIFF = True
SECURE_REFERRER_POLICY = "same-origin"
SECURE_CROSS_ORIGIN_OPENER_POLICY = "same-origin"
SECURE_HSTS_SECONDS = 365 * 24 * 60 * 60 if IS_HTTPS else 0
SECURE_HSTS_INCLUDE_SUBDOMAINS = IS_HTTPS
# HSTS preload lists cover whole domains and are hard to leave, so the site must decide on them.
SILENCED_SYSTEM_CHECKS = ["security.W021"]
SECURE_SSL_REDIRECT = IS_HTTPS
if env_bool("BEHIND_TLS_PROXY", default=False):
    SECURE_PROXY_SSL_HEADER = ("HTTP_X_FORWARDED_PROTO", "https")
X_FRAME_OPTIONS = "DENY"
CONTENT_SECURITY_POLICY = {
    "DIRECTIVES": {
        "default-src": [SELF],
        # Some browsers don't accept a WebSocket of the same origin as 'self'.
        "connect-src": [SELF, "ws" + PUBLIC_URL.removeprefix("http")],
        "img-src": [SELF, "data:"],
        # Style attributes, for the position of bars; style sheets come from our own origin only.
        "style-src-attr": [UNSAFE_INLINE],
        "object-src": [NONE],
        "base-uri": [NONE],
        "form-action": [SELF],
        "frame-ancestors": [NONE],
    }
}

STATIC_URL = "/static/"
STATICFILES_DIRS = [BASE_DIR / "static"]
# An image serves collected files, compressed and named by content; a working copy serves the
# source files.
STATIC_COLLECTED = env_bool("STATIC_COLLECTED", default=False)
STATIC_ROOT = BASE_DIR / "var" / "static" if STATIC_COLLECTED else None
WHITENOISE_USE_FINDERS = not STATIC_COLLECTED
WHITENOISE_ALLOW_ALL_ORIGINS = False
STORAGES = {
    "default": {"BACKEND": "django.core.files.storage.FileSystemStorage"},
    "staticfiles": {
        "BACKEND": "whitenoise.storage.CompressedManifestStaticFilesStorage"
        if STATIC_COLLECTED
        else "django.contrib.staticfiles.storage.StaticFilesStorage"
    },
}

DATA_UPLOAD_MAX_MEMORY_SIZE = 1024 * 1024
FILE_UPLOAD_MAX_MEMORY_SIZE = 1024 * 1024
# The page of quotas sends nine fields for each project and class at once.
DATA_UPLOAD_MAX_NUMBER_FIELDS = 5_000

# --- REST -----------------------------------------------------------------------------------------

REST_FRAMEWORK = {
    "DEFAULT_RENDERER_CLASSES": ["rest_framework.renderers.JSONRenderer"],
    "DEFAULT_PARSER_CLASSES": ["rest_framework.parsers.JSONParser"],
    "DEFAULT_SCHEMA_CLASS": "drf_spectacular.openapi.AutoSchema",
    "DEFAULT_PERMISSION_CLASSES": ["rest_framework.permissions.IsAuthenticated"],
    "EXCEPTION_HANDLER": "portal.api.errors.problem_handler",
    "COERCE_DECIMAL_TO_STRING": True,
    "TEST_REQUEST_DEFAULT_FORMAT": "json",
}
SPECTACULAR_SETTINGS = {
    # Two fields with the same choices share one enum.
    "ENUM_NAME_OVERRIDES": {
        "DiversionModeEnum": ["off", "suggest", "automatic"],
        "ActEnum": ["book", "quote"],
        "AnswerOutcomeEnum": ["accepted", "declined"],
        "AnnouncementLevelEnum": ["info", "wait", "risk"],
        "ApproverRoleEnum": ["lead", "admin"],
        "StatementFileEnum": ["pdf", "csv", "focus.csv", "focus.parquet"],
        "AlertAudienceEnum": ["leads", "admins", "both", "people"],
        "BudgetLevelEnum": ["platform", "tenant", "lab", "project", "campaign", "person"],
        "MemberRoleEnum": ["viewer", "researcher", "lead", "tenant_admin"],
        "RequirementKindEnum": ["terms", "training"],
        "BulkActEnum": ["message", "release", "pause"],
        "OfferStateEnum": ["open", "accepted", "declined", "expired", "withdrawn"],
        "ApprovalStateEnum": ["open", "approved", "declined", "expired", "withdrawn"],
        "DeliveryStateEnum": ["pending", "delivered", "failed", "dropped"],
        "JiraMessageStateEnum": ["received", "done", "refused", "ignored"],
        "PauseMethodEnum": ["stop", "signal", "suspend"],
        "TrialStateEnum": ["waiting", "running", "done", "cancelled", "failed"],
        "PolicyStateEnum": ["draft", "shadow", "trial", "approved", "partial", "live", "retired"],
        "CapacityPlanStateEnum": ["proposed", "active", "ended", "cancelled", "refused"],
        "ActionEnum": [
            *("notify", "approval", "cheaper", "no_borrowing", "no_bookings", "drain", "pause"),
        ],
        "UnitLimitActionEnum": ["notify", "pause"],
        "CapacitySourceEnum": ["person", "sprint", "backlog"],
        "SprintRuleModeEnum": ["off", "propose", "rent"],
        "MachineStateEnum": [
            *("requested", "booting", "ready", "draining", "releasing", "released", "lost", "orphan"),
        ],
    },
    "TITLE": "GPU portal",
    "VERSION": "1",
    "OAS_VERSION": "3.1.0",
    "SCHEMA_PATH_PREFIX": "/api/v1",
    "SERVE_INCLUDE_SCHEMA": False,
    "SWAGGER_UI_DIST": "SIDECAR",
    "SWAGGER_UI_FAVICON_HREF": "SIDECAR",
    "COMPONENT_SPLIT_REQUEST": True,
    "POSTPROCESSING_HOOKS": [
        "tenants.api.outgoing.events.webhooks_describe",
        "drf_spectacular.hooks.postprocess_schema_enums",
    ],
}

# Calls within ten seconds before the answer is 429.
CALL_LIMITS = {
    "token": env_int("CALLS_PER_TOKEN", 6_000, low=1, high=10**9),
    "address": env_int("CALLS_PER_ADDRESS", 18_000, low=1, high=10**9),
    "quotes": env_int("QUOTES_PER_PERSON", 100, low=1, high=10**9),
    "enrol": env_int("ENROLMENTS_PER_ADDRESS", 50, low=1, high=10**9),
    "sign_on": env_int("SIGN_ONS_PER_ADDRESS", 50, low=1, high=10**9),
    "device": env_int("DEVICE_SIGN_INS", 20, low=1, high=10**9),
}

# --- Mail -----------------------------------------------------------------------------------------

_mail = env_mail("MAIL_URL")
MAIL_ON = _mail is not None
EMAIL_BACKEND = _mail.backend if _mail else "django.core.mail.backends.dummy.EmailBackend"
EMAIL_HOST = _mail.host if _mail else ""
EMAIL_PORT = _mail.port if _mail else 25
EMAIL_HOST_USER = _mail.user if _mail else ""
EMAIL_HOST_PASSWORD = _mail.password if _mail else ""
EMAIL_USE_TLS = _mail is not None and _mail.security == "starttls"
EMAIL_USE_SSL = _mail is not None and _mail.security == "tls"
EMAIL_FILE_PATH = _mail.folder if _mail else ""
EMAIL_TIMEOUT = 10
DEFAULT_FROM_EMAIL = env_str("MAIL_FROM", f"GPU portal <gpu-portal@{PUBLIC_HOST}>")

# --- Webhooks -------------------------------------------------------------------------------------

# Private networks that webhooks may reach; by default none, so that nobody can make the portal call
# services of its own network.
WEBHOOK_ALLOW = env_networks("WEBHOOK_ALLOW")
# The providers of machines and their offers; empty: the site rents none.
PROVIDERS_FILE = env_str("PROVIDERS_FILE", "")

# --- Notebooks ------------------------------------------------------------------------------------

# Where browsers reach notebooks: each is at a host of its own below this one, so that its scripts are
# of another origin than the portal and than other notebooks. Empty: the site has none.
NOTEBOOK_URL = env_origin("NOTEBOOK_URL", "") if env_str("NOTEBOOK_URL", "") else ""

# --- Single sign-on -------------------------------------------------------------------------------

# Private networks in which providers of tenants may be; by default none.
SIGN_ON_ALLOW = env_networks("SIGN_ON_ALLOW")

# --- Metrics --------------------------------------------------------------------------------------

# The token that Prometheus sends to read /metrics; empty: none.
METRICS_TOKEN = env_secret("METRICS_TOKEN", is_needed=False)
# Networks that may read it without a token; by default none, also not loopback, because a proxy on
# the same machine connects from there, and not every proxy identifies itself.
METRICS_ALLOW = env_networks("METRICS_ALLOW")

# An OpenTelemetry collector's address for traces, by OTLP over HTTP. Needs the extra `traces`.
TRACES_URL = env_collector("TRACES_URL")

# --- Code -----------------------------------------------------------------------------------------

# Stored with each decision. An image has no repository, so its build sets the variable.
CODE_COMMIT = code_commit(BASE_DIR, env_str("PORTAL_COMMIT", ""))

# --- Language and time ----------------------------------------------------------------------------

LANGUAGE_CODE = "en-gb"
LANGUAGES = [("en-gb", "English")]
USE_I18N = True
USE_TZ = True
TIME_ZONE = "UTC"
# The country of the site, whose public holidays forecasts of demand take as Sundays.
HOLIDAYS = env_country("HOLIDAYS")

# --- Logs -----------------------------------------------------------------------------------------

LOGGING: dict[str, Any] = {
    "version": 1,
    "disable_existing_loggers": False,
    "formatters": {
        "line": {
            "()": "portal.logs.LineFormatter",
            "format": "{asctime} {levelname} {name}: {message}",
            "style": "{",
        },
        "json": {"()": "portal.logs.JsonFormatter"},
    },
    "filters": {"outages": {"()": "portal.logs.OutageFilter"}},
    "handlers": {
        "stderr": {
            "filters": ["outages"],
            "class": "logging.StreamHandler",
            "formatter": env_choice("LOG_FORMAT", {"text": "line", "json": "json"}, "text"),
        }
    },
    "root": {"handlers": ["stderr"], "level": env_str("LOG_LEVEL", "INFO").upper()},
    "loggers": {
        "django": {"level": "INFO"},
        # Django's own configuration would log errors of requests a second time.
        "django.server": {"propagate": True},
        # Invalid requests of clients are counted at /metrics and not logged one by one.
        "django.request": {"level": "ERROR"},
        "django.security.DisallowedHost": {"level": "CRITICAL"},
    },
}
LOGGING_CONFIG = "logging.config.dictConfig"

# --- Checks for a public address ------------------------------------------------------------------

production_check(
    is_https=IS_HTTPS,
    is_debug=DEBUG,
    hosts=ALLOWED_HOSTS,
    secrets={
        "SECRET_KEY": SECRET_KEY,
        **({"AGENTS_MASTER_KEY": AGENTS_MASTER_KEY} if AGENTS_MASTER_KEY else {}),
        **{f"SECRET_KEY_FALLBACKS[{at}]": old for at, old in enumerate(SECRET_KEY_FALLBACKS)},
    },
    stores={"DATABASE_URL": _database, "REDIS_URL": _redis_url, "AGENTS_REDIS_URL": _agents_url},
)
