/*
 * hutch_http.h - HTTP requests as tasks: sessions, uploads, downloads, pinned certificates;
 *                monitors of whether a host can be reached
 *
 * SPDX-License-Identifier: MIT
 *
 * The second library, libhutch_http.so. It makes requests with libcurl and uses libhutch for
 * queues and ports. The conventions of hutch.h apply here too: statuses, structs with a size,
 * references, units, callbacks.
 *
 *   hutch_http_session *session;
 *   hutch_http_task *task;
 *   hutch_http_response response = {.struct_size = sizeof response};
 *   hutch_http_request request = {.struct_size = sizeof request,
 *                                 .url = "https://example.org/logo.png"};
 *   if (hutch_http_session_create(NULL, &session) != HUTCH_OK ||
 *       hutch_http_task_create(session, &request, &task) != HUTCH_OK) {
 *     fprintf(stderr, "%s\n", hutch_http_error_words());
 *     return 1;
 *   }
 *   hutch_http_task_resume(task);
 *   hutch_http_task_wait(task, HUTCH_FOREVER);
 *   if (hutch_http_task_response(task, &response) == HUTCH_OK)
 *     show(response.code, response.body, response.body_size);
 *   hutch_http_task_release(task);
 *   hutch_http_session_release(session);
 *
 * A session has one thread, which is named "hutch-http", blocks all signals but those of
 * faults (see hutch_queue_create), and does all requests of the session. The callbacks of
 * a request are made on that thread, but for the completion if the request names a port
 * or a queue, and for those of a request with HUTCH_HTTP_ANY_THREAD that the cache
 * answers. While a callback runs, no other request of the session continues.
 * hutch_http_task_wait and hutch_http_session_wait return HUTCH_DEADLOCK within a
 * callback of the same session if they would have to wait.
 *
 * STRINGS. Text ends with NUL and is copied by the call that takes it. A URL is absolute, of
 * the scheme http or https, in ASCII, and has no space. A header's name is a token; its value
 * has no control character but the tab. Other text is refused with HUTCH_INVALID_ARGUMENT, so
 * that no text from outside adds a header or a request.
 *
 * ERRORS. The failures of this library have the numbers of hutch.h and those below. This
 * thread's last failure is returned by hutch_http_error_words, and not by hutch_error_words.
 * A response with a code such as 404 is not a failure: the task ends with HUTCH_OK. Beside the
 * statuses below, a task ends with HUTCH_TIMED_OUT (one of its timeouts), HUTCH_TOO_LARGE
 * (max_headers; max_body, also for text that a decoder made), HUTCH_INVALID_ARGUMENT (the answer
 * to a challenge), HUTCH_BUSY (another task downloads to the file), HUTCH_NO_SPACE and HUTCH_IO
 * (the file of a download, a stored body that cannot be read, or what else libcurl could not do),
 * HUTCH_NO_MEMORY, HUTCH_CANCELLED, or what on_body answers.
 *
 * FORK. In the child of a fork, every call for a handle of the parent returns HUTCH_FORKED.
 */
#ifndef HUTCH_HTTP_H
#define HUTCH_HTTP_H

#include "hutch_tasks.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct hutch_http_session hutch_http_session; /* a thread and its connections; counted */
typedef struct hutch_http_task hutch_http_task;       /* one request; counted */

/* ------------------------------------------------------------------ status */

/* Failures of a hutch_status beside those of hutch.h. */
enum {
  HUTCH_HTTP_NO_HOST = -101,     /* the host's or the proxy's name has no address */
  HUTCH_HTTP_NO_CONNECTION = -102, /* no connection to the host or the proxy could be made */
  HUTCH_HTTP_LOST = -103,        /* the connection ended within the response or the upload */
  HUTCH_HTTP_BAD_RESPONSE = -104, /* the response is not HTTP, or contradicts itself */
  HUTCH_HTTP_TLS = -105,         /* the TLS handshake failed, or a TLS setting is unusable */
  HUTCH_HTTP_NOT_TRUSTED = -106, /* the certificate's chain or name is not valid */
  HUTCH_HTTP_PIN = -107,         /* the server's key or certificate is none of those pinned */
  HUTCH_HTTP_REDIRECT = -108,    /* a redirect that is refused, or too many of them */
  HUTCH_HTTP_UPLOAD = -109,      /* the body to send cannot be read, or not a second time */
  HUTCH_HTTP_CODE = -110,        /* the response's code is not accepted; see first_code */
  HUTCH_HTTP_MEDIA_TYPE = -111,  /* its media type is not accepted; see media_types */
  HUTCH_HTTP_DECODE = -112       /* no decoder of the request could decode the body */
};

/*
 * hutch_http_status_name - the name of a status, as "HUTCH_HTTP_PIN"
 *
 * The call knows the statuses of hutch.h too. Never NULL. Since 0.1.
 */
HUTCH_API const char *hutch_http_status_name(hutch_status status);

/*
 * hutch_http_error_words - this thread's last failure of this library, in words
 *
 * Valid until the thread's next failure. Never NULL. Since 0.1.
 */
HUTCH_API const char *hutch_http_error_words(void);

/* hutch_http_last_error - like hutch_last_error, for this library. Since 0.1. */
HUTCH_API hutch_status hutch_http_last_error(hutch_error *out);

/* ---------------------------------------------------------------- sessions */

/* A header of a request or a response. The struct is an element of arrays and has no size. */
typedef struct hutch_http_header {
  const char *name;
  const char *value;
} hutch_http_header;

/* Whom a session trusts with https; http has neither trust nor pins. All zero: the system's
   authorities, the chain and the name. */
typedef struct hutch_http_security {
  size_t struct_size;
  uint32_t flags; /* HUTCH_HTTP_ANY_CHAIN, HUTCH_HTTP_ANY_NAME, or 0 */
  uint32_t reserved;
  /* SHA-256 digests of public keys (SubjectPublicKeyInfo in DER), 32 bytes each, one behind
     the other. The key of the server's own certificate must be one of them. */
  const void *public_keys;
  size_t public_key_count; /* 0: no key is pinned; at most 64 */
  /* Certificates in PEM, one behind the other. The server's own certificate must be one of
     them. A session with these makes a new connection for each request. NULL: none. Not
     together with public_keys. */
  const char *certificates;
  const char *authorities; /* a file of authorities in PEM; NULL: the system's */
  const char *identity;    /* a file with the client's certificate in PEM; NULL: none */
  const char *identity_key; /* a file with its key in PEM; NULL: in the file of identity */
  const char *identity_password; /* the password of the key; NULL: none */
} hutch_http_security;

enum {
  HUTCH_HTTP_ANY_CHAIN = 1, /* do not validate the chain; with a pin, the pin decides */
  HUTCH_HTTP_ANY_NAME = 2   /* do not compare the certificate's name with the host */
};

/* The version of HTTP. */
enum {
  HUTCH_HTTP_VERSION_DEFAULT = 0, /* HTTP/2 over TLS if the server agrees, else HTTP/1.1 */
  HUTCH_HTTP_VERSION_1 = 1,       /* HTTP/1.1 only */
  HUTCH_HTTP_VERSION_2 = 2        /* HTTP/2, without TLS too, with no upgrade */
};

/* How to make a session. All zero: the defaults. What a session has is fixed. */
typedef struct hutch_http_configuration {
  size_t struct_size;
  uint32_t flags;                /* HUTCH_HTTP_COOKIES, HUTCH_HTTP_INSECURE_REDIRECTS, or 0 */
  uint32_t version;              /* HUTCH_HTTP_VERSION_* */
  uint32_t connections_per_host; /* at most so many at once; 0: 6. This, width and redirects are
                                    65,536 or less */
  uint32_t width;                /* how many requests run at once; 0: 256 */
  uint32_t redirects;            /* how many a request follows; 0: 20 */
  uint32_t reserved;
  int64_t connect_timeout;       /* for a connection with its TLS handshake; 0: 30 s */
  int64_t idle_timeout;          /* without a byte in either direction, while the request has a
                                    connection or one is being made for it; what comes while a
                                    callback of the session runs counts. 0: 60 s */
  int64_t total_timeout;         /* for a request from its start; 0: none */
  int64_t progress_interval;     /* between two reports of progress; 0: 100 ms */
  uint64_t max_headers;          /* bytes of a response's header lines; 0: 256 KiB. libcurl has
                                    limits of its own, in 7.88 of 100 KB for a line
                                    (HUTCH_NO_MEMORY) and 300 KB for all (HUTCH_HTTP_LOST) */
  uint64_t max_body;             /* bytes of a body in memory; 0: 64 MiB */
  const char *proxy;             /* the URL of a proxy; NULL: none. The environment is not
                                    looked at */
  const char *cookie_file;       /* with HUTCH_HTTP_COOKIES: where the jar is read from, and
                                    written to when the session ends; NULL: in memory only. A
                                    file that cannot be read or written is no failure */
  const hutch_http_header *headers; /* for every request that does not have them itself */
  size_t header_count;
  const hutch_http_security *security; /* NULL: the defaults */
  hutch_cache *cache;   /* where responses are stored, see CACHING; the session keeps a
                           reference. NULL: none */
  uint32_t cache_mode;  /* HUTCH_HTTP_CACHE_*, for requests that name none; 0: BY_PROTOCOL */
  uint32_t cache_flags; /* HUTCH_HTTP_CACHE_SHARED, _CDN, _NO_LEASES, or 0 */
  int64_t cache_lease;  /* how long a session that was killed keeps others waiting; 0: 5 s */
} hutch_http_configuration;

enum {
  HUTCH_HTTP_COOKIES = 1,           /* the session keeps cookies and sends them */
  HUTCH_HTTP_INSECURE_REDIRECTS = 2 /* redirects may lead from https to http */
};

/* How requests use the cache. */
enum {
  HUTCH_HTTP_CACHE_BY_PROTOCOL = 1, /* as RFC 9111 says */
  HUTCH_HTTP_CACHE_RELOAD = 2,      /* no stored response; a new one is stored */
  HUTCH_HTTP_CACHE_ELSE_LOAD = 3,   /* a stored response of any age, else a request */
  HUTCH_HTTP_CACHE_ONLY = 4,        /* a stored response of any age, else code 504: no request is
                                       made, whatever its method, and none without a cache */
  HUTCH_HTTP_CACHE_VALIDATE = 5,    /* a stored response once the server has confirmed it; a
                                       fresh one that is immutable (RFC 8246) at once */
  HUTCH_HTTP_CACHE_NONE = 6         /* no stored response, and nothing is stored */
};

enum {
  HUTCH_HTTP_CACHE_SHARED = 1,   /* the cache has more than one user: nothing private is stored */
  HUTCH_HTTP_CACHE_NO_LEASES = 2, /* do not wait for requests of other sessions, see CACHING */
  HUTCH_HTTP_CACHE_CDN = 4       /* SHARED, and the cache works for the origin servers, as a CDN
                                    does: CDN-Cache-Control (RFC 9213) decides about a response
                                    that has it, in place of Cache-Control and Expires */
};

/*
 * CACHING. A session with a cache answers GET and HEAD by RFC 9111, with the extensions of RFC
 * 5861: stale-while-revalidate and stale-if-error. An error is a code 500, 502, 503 or 504, a
 * host or a proxy that is not found or takes no connection, a lost connection, a response whose
 * headers are not valid, or the timeout of a connection or of its idleness, before the headers are
 * complete. A TLS handshake that fails, a server that is not trusted, and one that is not pinned
 * are none: the task fails. With HUTCH_HTTP_CACHE_VALIDATE nothing stands in for any error.
 * A validation behind an answer accepts what the request accepts.
 * Responses to GET are stored, and those to POST that say how long they are fresh and have the
 * URL of the request in Content-Location. The key of a URL is "GET ", and the URL with its port
 * and without user and fragment; the value has a response for each kind of request that Vary
 * tells apart, at most 16. A response with more than 1,000 headers is not stored, nor is one of a
 * type whose bodies have no end: text/event-stream, multipart/x-mixed-replace. Limits, ages and
 * events are those of the cache, which other sessions, other processes and other values may share.
 * Times are those of the cache's clock.
 *
 * A response from the cache has the headers Age and Cache-Status (RFC 9211), and from_cache is 1.
 * The callbacks and the completion are as for any task. A range is answered from a whole body, or
 * from a part that has it. If-None-Match and If-Modified-Since of the host are answered with code
 * 304 by a fresh response. Requests with other conditions, a body or a header Host, and downloads
 * with HUTCH_HTTP_RESUME, are made without the cache. A successful request of another method than
 * GET, HEAD, OPTIONS and TRACE removes what is stored for its URL, and for Location and
 * Content-Location of the same origin; what this session has asked for before, and has not got yet,
 * is not stored then.
 *
 * A whole body that goes to on_body or to a file is not kept in memory: if it is larger than 256
 * KiB, it is written to a file of the disk tier while the host already reads, and a value of
 * more than 1 MiB on disk is read in pieces of 256 KiB. hutch_http_task_open_body gives its
 * descriptor. Other bodies are stored if they have at most max_body bytes, as all are in a cache
 * in memory.
 *
 * A part is stored that a host has asked for (206), and what came of a body before its
 * connection was lost, unless that was being written to a file. Parts have at most max_body bytes,
 * and are in memory until they are stored. A task for the whole asks for the rest (Range,
 * If-Range), if both have the same strong validator: parts of two versions are never put
 * together. A part that has every byte is stored as the whole.
 *
 * Several tasks of a session for one URL make one request. The others wait for its response, and
 * use it if it may be stored and answers them. If the task that makes the request is cancelled or
 * suspended, the next one makes it again, and so if it fails; if that request fails too, each of
 * the others makes its own. Sessions that share the directory of a cache, in any processes, do the
 * same: the one that makes the request has a lease, an entry of the disk tier whose key is "LEASE "
 * and the key of the URL. It is removed when the request has ended, and renewed as long as it runs.
 * The others look for the response every 50 ms or more often. If a lease is not renewed for
 * cache_lease (real time), as while a callback of its session runs, one of them makes the request.
 * A cache in memory has no leases.
 */

/*
 * hutch_http_session_create - make a session
 *
 * configuration may be NULL. *out: a new reference, which hutch_http_session_release
 * releases. HUTCH_INVALID_ARGUMENT: a text is malformed, or a number is out of range.
 * HUTCH_UNSUPPORTED: the libcurl of this process lacks what the configuration asks for.
 * Since 0.1.
 */
HUTCH_API hutch_status hutch_http_session_create(const hutch_http_configuration *configuration,
                                                 hutch_http_session **out);

/* How a session ends. */
enum {
  HUTCH_HTTP_FINISH = 0, /* tasks that run continue; those that are suspended are cancelled */
  HUTCH_HTTP_CANCEL = 1  /* every task is cancelled */
};

/*
 * hutch_http_session_end - accept no more requests
 *
 * The call does not wait. hutch_http_task_create then returns HUTCH_CLOSED. A second call may
 * still cancel what the first one let continue. When the last task has ended, the session
 * closes its connections, writes its cookie file, and ends its thread. Since 0.1.
 */
HUTCH_API hutch_status hutch_http_session_end(hutch_http_session *session, uint32_t how);

/*
 * hutch_http_session_wait - wait until a session has ended
 *
 * HUTCH_OK: every completion has been made or waits in its port or queue, the cookie file has
 * been written, the connections are closed, and the session's thread has ended. timeout and the
 * other answers are as in hutch_task_wait. Since 0.1.
 */
HUTCH_API hutch_status hutch_http_session_wait(hutch_http_session *session, int64_t timeout);

/*
 * hutch_http_session_retain, hutch_http_session_release - references
 *
 * retain returns its argument. The last release ends the session with HUTCH_HTTP_FINISH. If no
 * task is left, it waits until the session's thread has ended, unless it is made within a callback
 * of the session. A process may exit while such a thread runs, unless the host has initialised
 * OpenSSL itself before the first session: then libcrypto frees at exit() what the thread uses,
 * and the process may crash. Since 0.1.
 */
HUTCH_API hutch_http_session *hutch_http_session_retain(hutch_http_session *session);
HUTCH_API void hutch_http_session_release(hutch_http_session *session);

/* ------------------------------------------------------------------- tasks */

/*
 * A task is one request with the redirects and the answers to challenges that follow from it.
 * It is made suspended. It makes exactly one completion: when it has ended, failed or was
 * cancelled.
 */

/* The state of a task. */
enum {
  HUTCH_HTTP_SUSPENDED = 1,
  HUTCH_HTTP_RUNNING = 2,    /* or it waits for its turn */
  HUTCH_HTTP_CANCELLING = 3, /* it was cancelled, and the session's thread has not ended it yet */
  HUTCH_HTTP_ENDED = 4       /* its status is final; its completion may still be being made */
};

/* How much has been transferred; see hutch_http_task_progress. */
typedef struct hutch_http_progress {
  size_t struct_size;
  uint64_t sent;             /* bytes of the request's body */
  uint64_t expected_to_send; /* 0: there is no body, or its size is not known */
  uint64_t received;         /* bytes of the response's body, as they came */
  uint64_t expected;         /* 0: not known */
} hutch_http_progress;

/* The result of a task. */
typedef struct hutch_http_completion {
  size_t struct_size;
  hutch_status status;
  uint32_t reserved;
  hutch_http_task *task;    /* valid during the call; hutch_http_task_retain keeps it */
  const hutch_error *error; /* status < 0: the error, valid likewise; else NULL */
} hutch_http_completion;

/* A server or a proxy asks for credentials. */
typedef struct hutch_http_challenge {
  size_t struct_size;
  uint32_t attempt;   /* 1 for the first time, 2 if the first credentials were refused, ... */
  uint32_t is_proxy;  /* 1: the proxy asks */
  const char *url;    /* of the request */
  const char *scheme; /* "basic" or "digest" */
  const char *realm;  /* "" if there is none */
} hutch_http_challenge;

/* The answer to a challenge. The library clears the struct after use. */
typedef struct hutch_http_credentials {
  size_t struct_size;
  char user[256];     /* without a colon for basic; ends with NUL */
  char password[256]; /* ends with NUL */
} hutch_http_credentials;

/* Called with a task's completion. */
typedef void (*hutch_http_complete)(void *context, const hutch_http_completion *completion);
/* Called with progress at most once an interval, and once before the completion if a byte of a
   body was transferred. */
typedef void (*hutch_http_on_progress)(void *context, hutch_http_task *task,
                                       const hutch_http_progress *progress);
/* Called when the headers of the final response are there; hutch_http_task_response has them. */
typedef void (*hutch_http_on_response)(void *context, hutch_http_task *task);
/* Called with each piece of the final response's body, in order. The piece is valid during the
   call. Another answer than HUTCH_OK ends the task with that status. */
typedef hutch_status (*hutch_http_on_body)(void *context, hutch_http_task *task,
                                           const void *data, size_t size);
/* Asked before a redirect is followed. 0: follow it; another number: the redirect itself is
   the response. */
typedef int32_t (*hutch_http_on_redirect)(void *context, hutch_http_task *task, int32_t code,
                                          const char *url);
/* Asked for credentials, at most three times for one server. 0: *credentials is the answer;
   another number: the refusal itself is the response. A proxy that refuses a tunnel to an https
   URL sends no response of the task: it then ends with HUTCH_HTTP_NO_CONNECTION. */
typedef int32_t (*hutch_http_on_challenge)(void *context, hutch_http_task *task,
                                           const hutch_http_challenge *challenge,
                                           hutch_http_credentials *credentials);
/* Fills buffer with the next bytes of a body, at most size. Returns how many there were; 0: the
   end; below 0: the task ends with HUTCH_HTTP_UPLOAD. buffer NULL: begin again at the first
   byte, return 0; or below 0 if that cannot be done. */
typedef int64_t (*hutch_http_read)(void *context, void *buffer, size_t size);

/* A size that is not known. */
#define HUTCH_HTTP_UNKNOWN_SIZE UINT64_MAX

/* A part of a multipart body. The struct is an element of arrays and has no size. */
typedef struct hutch_http_part {
  const char *name;
  const char *file_name;  /* NULL: none */
  const char *media_type; /* NULL: none */
  /* The content: one of these three. */
  const void *data;       /* bytes, which are copied */
  size_t size;
  const char *path;       /* a regular file, which is opened by the call and read when it is sent */
  hutch_http_read read;   /* called with the context of the request */
  uint64_t read_size;     /* of read: its size, or HUTCH_HTTP_UNKNOWN_SIZE */
} hutch_http_part;

/* What decodes the body of a response. */
enum {
  HUTCH_HTTP_DECODE_HOST = 0,  /* a function of the host */
  HUTCH_HTTP_DECODE_BYTES = 1, /* any body, as it is */
  HUTCH_HTTP_DECODE_TEXT = 2,  /* text of the charset in Content-Type (UTF-8 without one), as
                                  UTF-8 */
  HUTCH_HTTP_DECODE_JSON = 3   /* JSON (RFC 8259), checked; its text */
};

/* Makes an object of a body; the object is the host's. Another answer than HUTCH_OK: the next
   decoder is asked. It is called on the session's thread, or as HUTCH_HTTP_ANY_THREAD says. */
typedef hutch_status (*hutch_http_decode)(void *context, const void *body, uint64_t size,
                                          void **object);

/* One of a chain of decoders. The struct is an element of arrays and has no size. */
typedef struct hutch_http_decoder {
  uint32_t kind;           /* HUTCH_HTTP_DECODE_* */
  uint32_t reserved;
  const char *media_types; /* it is asked for bodies of these types, as in hutch_http_request;
                              NULL: of any */
  hutch_http_decode decode; /* of HUTCH_HTTP_DECODE_HOST */
  void *context;            /* for decode; valid until the request's context is released */
} hutch_http_decoder;

/* How to make a task. All zero, but for url: a GET whose body is kept in memory. */
typedef struct hutch_http_request {
  size_t struct_size;
  const char *url;
  const char *method; /* a token; NULL: GET, or POST if there is a body */
  const hutch_http_header *headers; /* Content-Length and Transfer-Encoding are refused */
  size_t header_count;
  /* The body to send: one of these three, form, parts, or none. */
  const void *body;      /* bytes, which are copied */
  size_t body_size;
  const char *body_file; /* a regular file, which is opened by the call */
  hutch_http_read read;  /* called with context */
  uint64_t read_size;    /* of read: its size, or HUTCH_HTTP_UNKNOWN_SIZE */
  /* Where a response with a code from 200 to 299 is stored: a file, which is replaced when the
     body is complete. Until then the body is in a file of the same name with ".part" behind
     it. NULL: the body stays in memory, or is passed to on_body. */
  const char *download;
  int32_t priority; /* HUTCH_PRIORITY_*: the order in which tasks start if width is reached */
  uint32_t flags;   /* HUTCH_HTTP_NO_REDIRECTS, _COMPRESSED, _RESUME, _JSON, _ANY_THREAD, or 0 */
  int64_t idle_timeout;  /* 0: the session's */
  int64_t total_timeout; /* 0: the session's */
  hutch_http_complete complete; /* NULL: no call */
  hutch_http_on_progress on_progress;
  hutch_http_on_response on_response;
  hutch_http_on_body on_body; /* the body is not kept in memory; not with download */
  hutch_http_on_redirect on_redirect;
  hutch_http_on_challenge on_challenge;
  void *context;         /* for all of these */
  /* Called once with context when the task no longer uses it: after the completion, or when
     there will be none. It is called also if the call failed. */
  hutch_release release;
  hutch_port *port;   /* where the completion waits to be drained; NULL: none */
  hutch_queue *queue; /* whose worker makes the completion; NULL: the session's thread, which
                         makes it too if the queue has no room. Not together with port */
  /* What the library writes: pairs of any text, percent-encoded as UTF-8. */
  const hutch_http_header *query; /* behind the query that url has */
  size_t query_count;
  const hutch_http_header *form;  /* a body, as application/x-www-form-urlencoded */
  size_t form_count;
  const hutch_http_part *parts;   /* a body, as multipart/form-data; it is read while it is sent */
  size_t part_count;
  /* Which responses are accepted. Another one ends the task with HUTCH_HTTP_CODE or
     HUTCH_HTTP_MEDIA_TYPE, and the words name each reason. Its body is neither decoded nor
     stored nor passed to on_body, but kept in memory. */
  uint32_t first_code;     /* the codes from this one */
  uint32_t last_code;      /* to this one; 0: any code. HUTCH_HTTP_RESUME accepts 206 too, of the
                              rest that it asks for. INVALID_ARGUMENT if it is below first_code,
                              also if it is 0 */
  const char *media_types; /* "application/json, image/png", say, where a star may stand for a
                              subtype; NULL: any. A response whose body is empty needs none */
  /* Asked in turn for the body of an accepted response; the first that succeeds wins, and
     hutch_http_task_decoded has its result. Not with download and on_body. */
  const hutch_http_decoder *decoders;
  size_t decoder_count;
  uint32_t cache_mode; /* HUTCH_HTTP_CACHE_*; 0: the session's */
  uint32_t reserved;
} hutch_http_request;

enum {
  HUTCH_HTTP_NO_REDIRECTS = 1, /* a redirect itself is the response */
  HUTCH_HTTP_COMPRESSED = 2,   /* accept a compressed body and decompress it; not with download.
                                  The limits count the bytes after that. A request with a Range
                                  is made without, and a body with a coding that libcurl does not
                                  know comes as it is */
  HUTCH_HTTP_RESUME = 4,       /* with download and GET: keep the part that came before a failure
                                  or a cancel, and continue a part that is there: the response
                                  then has code 206 */
  HUTCH_HTTP_JSON = 8,         /* body is JSON: it is checked by hutch_http_task_create, and sent
                                  as application/json */
  HUTCH_HTTP_ANY_THREAD = 16   /* the callbacks, the completion and the decoders may be called by
                                  hutch_http_task_resume too, see there */
};

/*
 * hutch_http_task_create - make a task, suspended
 *
 * *task: a new reference, which hutch_http_task_release releases. HUTCH_CLOSED: the session
 * has been ended. HUTCH_HTTP_UPLOAD: the file to send cannot be opened. HUTCH_INVALID_ARGUMENT: a
 * text is malformed or a duration negative; there are two bodies, or with HUTCH_HTTP_JSON one that
 * is no JSON; more than 4,096 headers or 64 decoders; on_body, decoders or HUTCH_HTTP_COMPRESSED
 * with a download, or decoders with on_body; HUTCH_HTTP_RESUME with another method, a body, a
 * header Range or no download; port and queue; last_code below first_code. HUTCH_UNSUPPORTED: a
 * flag, priority, mode or kind that this library does not know, or a reserved field that is not 0.
 * If the call fails, there is no completion.
 *
 * A redirect keeps method and body after 307 and 308, and becomes a GET after 303 (but a HEAD stays
 * one), and after 301 and 302 of a POST. It leads to http or https, to a URL without a user, and
 * from https to https only, unless HUTCH_HTTP_INSECURE_REDIRECTS is set; another one is
 * HUTCH_HTTP_REDIRECT. If it leads to another scheme, host or port, then the headers Authorization,
 * Cookie, Host and Proxy-Authorization, the user in the URL and the answers to challenges are not
 * sent there.
 *
 * With HUTCH_HTTP_RESUME, a file with ".resume" behind the name of download holds the URL and
 * the validator of the response of which ".part" has the first bytes: a strong ETag, or a date
 * of modification that is a minute older than the response. The next request for the same URL
 * and file asks for the rest of that version (Range, If-Range). If the server has another one,
 * or answers with another range, the download begins again: parts of two versions are never
 * put together. Without a validator, and after a boot of the machine, it begins again too. One
 * task at a time, of any process, downloads to a file; others end with HUTCH_BUSY. Since 0.1.
 */
HUTCH_API hutch_status hutch_http_task_create(hutch_http_session *session,
                                              const hutch_http_request *request,
                                              hutch_http_task **task);

/*
 * hutch_http_task_resume, hutch_http_task_suspend - let a task run, and stop it for a while
 *
 * A suspended task that has begun keeps its connection and reads nothing from it. It keeps its
 * place in width too, and its total_timeout runs on; its idle timeout does not. What libcurl had
 * already read may still reach the callbacks, and so may the piece at hand of a body of the
 * cache. The calls do not nest. They have no effect on a task that was cancelled or has ended;
 * and a suspend has none when the session has been ended.
 *
 * The first resume of a GET that a response in the memory of the cache answers without a request
 * ends the task before it returns, on the thread of the caller. This holds for a task without
 * port, queue, download and redirect whose flags have HUTCH_HTTP_ANY_THREAD, or that has no
 * callback but release and no decoder. The call then makes the callbacks and calls release,
 * while callbacks of other tasks may run. The call never reads the disk, and never waits for a
 * request. Since 0.1.
 */
HUTCH_API hutch_status hutch_http_task_resume(hutch_http_task *task);
HUTCH_API hutch_status hutch_http_task_suspend(hutch_http_task *task);

/*
 * hutch_http_task_cancel - end a task
 *
 * Its completion has HUTCH_CANCELLED, unless the task has ended already; *was (may be NULL)
 * receives the state that it had. Since 0.1.
 */
HUTCH_API hutch_status hutch_http_task_cancel(hutch_http_task *task, uint32_t *was);

/* hutch_http_task_set_priority - for a task that has not begun. Since 0.1. */
HUTCH_API hutch_status hutch_http_task_set_priority(hutch_http_task *task, int32_t priority);

/*
 * hutch_http_task_status - the state of a task
 *
 * *state receives HUTCH_HTTP_SUSPENDED, ...; if that is HUTCH_HTTP_ENDED, *result (may be
 * NULL) receives the status of the completion. Since 0.1.
 */
HUTCH_API hutch_status hutch_http_task_status(hutch_http_task *task, uint32_t *state,
                                              hutch_status *result);

/*
 * hutch_http_task_wait - wait until a task has ended
 *
 * HUTCH_OK: the completion has been made, or waits in its port or queue. timeout and the other
 * answers are as in hutch_task_wait. The call does not resume a suspended task. Since 0.1.
 */
HUTCH_API hutch_status hutch_http_task_wait(hutch_http_task *task, int64_t timeout);

/*
 * hutch_http_task_error - why a task failed
 *
 * HUTCH_NOT_FOUND: it has not ended, or with a status that is not below 0, as HUTCH_CANCELLED.
 * Since 0.1.
 */
HUTCH_API hutch_status hutch_http_task_error(hutch_http_task *task, hutch_error *out);

/* hutch_http_task_progress - how much has been transferred so far. Since 0.1. */
HUTCH_API hutch_status hutch_http_task_progress(hutch_http_task *task,
                                                hutch_http_progress *out);

/*
 * hutch_http_task_retain, hutch_http_task_release - references
 *
 * retain returns its argument. A release does not stop a task that runs; the last release
 * cancels one that is suspended, and so does a callback that suspends a task without references
 * and does not retain it. Since 0.1.
 */
HUTCH_API hutch_http_task *hutch_http_task_retain(hutch_http_task *task);
HUTCH_API void hutch_http_task_release(hutch_http_task *task);

/* --------------------------------------------------------------- responses */

/* A response. Its pointers are valid as long as the caller's reference to the task. */
typedef struct hutch_http_response {
  size_t struct_size;
  int32_t code;        /* 200, for example */
  uint32_t version;    /* 10, 11, 20 or 30 */
  const char *url;     /* where it came from, after all redirects */
  uint64_t redirects;  /* how many were followed */
  uint64_t header_count;
  const void *body;    /* what was kept in memory; NULL until the task has ended */
  uint64_t body_size;
  uint32_t from_cache; /* 1: a stored response, validated or not */
  uint32_t reserved;
} hutch_http_response;

/*
 * hutch_http_task_response - the final response of a task
 *
 * HUTCH_WOULD_BLOCK: its headers have not come yet. HUTCH_NOT_FOUND: the task ended without a
 * response. A task that failed within the body has a response with the part that came.
 * Since 0.1.
 */
HUTCH_API hutch_status hutch_http_task_response(hutch_http_task *task,
                                                hutch_http_response *out);

/*
 * hutch_http_task_open_body - a descriptor of a body that the cache has in a file
 *
 * *descriptor: a file descriptor, close-on-exec, which the caller closes; -1 unless the answer is
 * HUTCH_OK. The body is *size bytes from *offset. The descriptor reads the same bytes as long as it
 * is open, whatever becomes of the entry; all descriptors of a task have one position, so read with
 * pread, mmap or sendfile. HUTCH_WOULD_BLOCK: the task has not ended. HUTCH_OK is for a whole body
 * of two kinds: the task has stored it, it went to on_body or to a download, and is larger than
 * 256 KiB; or the cache had it in a value of more than 1 MiB that was not in its memory.
 * HUTCH_NOT_FOUND: it is another one, or there was no response. Since 0.1.
 */
HUTCH_API hutch_status hutch_http_task_open_body(hutch_http_task *task, int32_t *descriptor,
                                                 uint64_t *offset, uint64_t *size);

/*
 * hutch_http_task_header - a header of the response by name
 *
 * name is compared without regard to case. index counts the headers of that name from 0.
 * *value is valid as long as the caller's reference to the task; a control character that the
 * server sent in it, but for the tab, is a space. HUTCH_NOT_FOUND: there is no such header, and
 * *value is NULL. The other answers are those of hutch_http_task_response. Since 0.1.
 */
HUTCH_API hutch_status hutch_http_task_header(hutch_http_task *task, const char *name,
                                              uint64_t index, const char **value);

/* hutch_http_task_header_at - a header of the response by number, from 0. Since 0.1. */
HUTCH_API hutch_status hutch_http_task_header_at(hutch_http_task *task, uint64_t index,
                                                 hutch_http_header *out);

/* What a decoder made of a body. */
typedef struct hutch_http_decoded {
  size_t struct_size;
  uint64_t decoder;   /* its index among the decoders of the request */
  const void *text;   /* of a decoder of the library; valid as the body of the response is */
  uint64_t text_size;
  void *object;       /* of a decoder of the host */
} hutch_http_decoded;

/*
 * hutch_http_task_decoded - what the decoders of the request made of the body
 *
 * HUTCH_WOULD_BLOCK: the task has not ended. HUTCH_NOT_FOUND: it has failed, or has no
 * decoders. A task that was cancelled when a decoder had begun has a result all the same, since
 * an object is the host's to free. Since 0.1.
 */
HUTCH_API hutch_status hutch_http_task_decoded(hutch_http_task *task, hutch_http_decoded *out);

/* What a task cost. Times are durations from the start of its last request, or 0 if it did not
   come so far; on a connection that is used again, the first three are 0. */
typedef struct hutch_http_metrics {
  size_t struct_size;
  int64_t name_lookup; /* the host's name had been looked up */
  int64_t connect;     /* the connection had been made */
  int64_t tls;         /* the TLS handshake was done */
  int64_t first_byte;  /* the first byte of the response had come */
  int64_t total;       /* from the start of the first request to the end */
  uint64_t bytes_sent;     /* headers and bodies of all requests */
  uint64_t bytes_received; /* headers and bodies of all responses */
  uint64_t requests;       /* with redirects and answers to challenges */
  uint64_t connections;    /* how many had to be made */
  uint64_t from_cache;     /* 1: the response or a redirect to it was a stored one */
} hutch_http_metrics;

/*
 * hutch_http_task_metrics - what a task cost
 *
 * HUTCH_WOULD_BLOCK: it has not ended. Since 0.1.
 */
HUTCH_API hutch_status hutch_http_task_metrics(hutch_http_task *task, hutch_http_metrics *out);

/* ------------------------------------------------------------ reachability */

/*
 * A monitor tells whether the internet, or one host, can be reached. It has one thread, which is
 * named "hutch-reach", blocks all signals but those of faults, sleeps until the kernel announces
 * that a link, an address or a route has changed (netlink), and makes the monitor's callbacks. It
 * concerns the network namespace of the thread that starts it.
 */
typedef struct hutch_http_reachability hutch_http_reachability; /* a monitor; counted */

/* What a monitor knows. */
enum {
  HUTCH_HTTP_REACHABILITY_UNKNOWN = 0, /* not known yet, or the system does not say */
  HUTCH_HTTP_UNREACHABLE = 1,
  HUTCH_HTTP_REACHABLE = 2
};

/* Called with each new state, in order. The first call has the first state that is known. */
typedef void (*hutch_http_on_reachability)(void *context, uint32_t state);

/* How to make a monitor. All zero: a monitor of the internet without a callback. */
typedef struct hutch_http_reachability_options {
  size_t struct_size;
  /* NULL: reachable if the kernel has a route for packets to the internet, by IPv4 or IPv6, over a
     link that is up, has a carrier and is no loopback. No packet is sent.
     A URL of http or https: reachable if a TCP connection to its host and port can be made. It is
     made without a proxy, and closed at once. */
  const char *url;
  int64_t timeout;  /* for a connection with the look-up of the name; 0: 5 s. When the kernel
                       announces a change, the connection and its time begin anew */
  int64_t interval; /* from the end of a connection to the next one, if the kernel announces
                       nothing; 0: 60 s; HUTCH_FOREVER: none */
  uint32_t flags;   /* 0 */
  uint32_t reserved;
  hutch_http_on_reachability on_change; /* NULL: no call */
  void *context;         /* for on_change */
  /* Called once with context, when the monitor no longer uses it. It is called also if the call
     failed. */
  hutch_release release;
} hutch_http_reachability_options;

/*
 * hutch_http_reachability_start - begin to watch
 *
 * options may be NULL. *out: a new reference, which hutch_http_reachability_release releases.
 * HUTCH_INVALID_ARGUMENT: the URL is malformed, or a duration is negative. Since 0.1.
 */
HUTCH_API hutch_status hutch_http_reachability_start(
    const hutch_http_reachability_options *options, hutch_http_reachability **out);

/*
 * hutch_http_reachability_state - what the monitor knows
 *
 * *state receives HUTCH_HTTP_REACHABLE, ...: the state that was told last, or is being told. After
 * a stop it does not change. Since 0.1.
 */
HUTCH_API hutch_status hutch_http_reachability_state(hutch_http_reachability *monitor,
                                                     uint32_t *state);

/*
 * hutch_http_reachability_stop - end a monitor
 *
 * The call waits until the monitor's callback has returned and its context has been released, and
 * until the monitor's thread has ended, unless a connection is being tried. Within the monitor's
 * own callback it does not wait: that callback is the last one. A second call waits likewise, and
 * has no other effect. Since 0.1.
 */
HUTCH_API hutch_status hutch_http_reachability_stop(hutch_http_reachability *monitor);

/*
 * hutch_http_reachability_retain, hutch_http_reachability_release - references
 *
 * retain returns its argument. The last release stops the monitor, as hutch_http_reachability_stop
 * does. Since 0.1.
 */
HUTCH_API hutch_http_reachability *hutch_http_reachability_retain(
    hutch_http_reachability *monitor);
HUTCH_API void hutch_http_reachability_release(hutch_http_reachability *monitor);

#ifdef __cplusplus
}
#endif
#endif /* HUTCH_HTTP_H */
