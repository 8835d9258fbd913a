// libcurl's header, and its variadic functions in the shapes that the HTTP library needs.
#ifndef HUTCH_CCURL_H
#define HUTCH_CCURL_H

// Before libcurl's: then the names of libc are CSystem's alone.
#include "../CSystem/system.h"

// For text of other charsets; libc's, which the engine does not need.
#include <iconv.h>
// For a session's thread, which waits for sockets; the engine has none.
#include <sys/epoll.h>

// Its macros check the types of literal options only, and warn of the functions below.
#define CURL_DISABLE_TYPECHECK
#include <curl/curl.h>

static inline curl_version_info_data *hutch_curl_version(void) {
  return curl_version_info(CURLVERSION_NOW);
}

// libcrypto, if libcurl uses it, frees at exit() what the threads of sessions go on using, unless
// its first caller says otherwise.
__attribute__((weak)) int OPENSSL_init_crypto(uint64_t options, const void *settings);
static inline CURLcode hutch_curl_init(void) {
  const uint64_t no_atexit = 0x80000;
  if (OPENSSL_init_crypto) OPENSSL_init_crypto(no_atexit, 0);
  // Counted by libcurl, and safe from any thread since 7.84.
  return curl_global_init(CURL_GLOBAL_ALL);
}

// Of curl_easy_setopt, by the type of the option's argument. True: libcurl took the option.
static inline int hutch_curl_number(CURL *easy, CURLoption option, long value) {
  return curl_easy_setopt(easy, option, value) == CURLE_OK;
}
static inline int hutch_curl_size(CURL *easy, CURLoption option, int64_t value) {
  return curl_easy_setopt(easy, option, (curl_off_t)value) == CURLE_OK;
}
static inline int hutch_curl_pointer(CURL *easy, CURLoption option, const void *value) {
  return curl_easy_setopt(easy, option, value) == CURLE_OK;
}

// The callbacks of one transfer, all with the same context.
typedef size_t (*hutch_curl_bytes)(char *bytes, size_t size, size_t count, void *context);
typedef int (*hutch_curl_seek)(void *context, curl_off_t offset, int origin);
typedef int (*hutch_curl_progress)(void *context, curl_off_t receives, curl_off_t received,
                                   curl_off_t sends, curl_off_t sent);
typedef int (*hutch_curl_ready)(void *context, char *remote, char *local, int remote_port,
                                int local_port);
static inline int hutch_curl_callbacks(
    CURL *easy, void *context, hutch_curl_bytes header, hutch_curl_bytes body,
    hutch_curl_bytes upload, hutch_curl_seek seek, hutch_curl_progress progress,
    curl_opensocket_callback open, hutch_curl_ready ready) {
  return curl_easy_setopt(easy, CURLOPT_HEADERFUNCTION, header) == CURLE_OK &&
         curl_easy_setopt(easy, CURLOPT_HEADERDATA, context) == CURLE_OK &&
         curl_easy_setopt(easy, CURLOPT_WRITEFUNCTION, body) == CURLE_OK &&
         curl_easy_setopt(easy, CURLOPT_WRITEDATA, context) == CURLE_OK &&
         curl_easy_setopt(easy, CURLOPT_READFUNCTION, upload) == CURLE_OK &&
         curl_easy_setopt(easy, CURLOPT_READDATA, context) == CURLE_OK &&
         curl_easy_setopt(easy, CURLOPT_SEEKFUNCTION, seek) == CURLE_OK &&
         curl_easy_setopt(easy, CURLOPT_SEEKDATA, context) == CURLE_OK &&
         curl_easy_setopt(easy, CURLOPT_XFERINFOFUNCTION, progress) == CURLE_OK &&
         curl_easy_setopt(easy, CURLOPT_XFERINFODATA, context) == CURLE_OK &&
         curl_easy_setopt(easy, CURLOPT_OPENSOCKETFUNCTION, open) == CURLE_OK &&
         curl_easy_setopt(easy, CURLOPT_OPENSOCKETDATA, context) == CURLE_OK &&
         curl_easy_setopt(easy, CURLOPT_PREREQFUNCTION, ready) == CURLE_OK &&
         curl_easy_setopt(easy, CURLOPT_PREREQDATA, context) == CURLE_OK &&
         curl_easy_setopt(easy, CURLOPT_PRIVATE, context) == CURLE_OK;
}

// A socket for a connection; close-on-exec, which libcurl's own are not: a program that the host
// starts would keep the connection. Nor has it the number of a standard stream: a host that has
// closed one may still write to it, and would write to the server.
static inline curl_socket_t hutch_curl_socket(const struct curl_sockaddr *address) {
  int low = socket(address->family, address->socktype | SOCK_CLOEXEC, address->protocol);
  if (low < 0 || low > 2) return low;
  int high = hutch_duplicate(low);
  close(low);
  return high;
}
static inline curl_socket_t hutch_curl_open(void *context, curlsocktype purpose,
                                            struct curl_sockaddr *address) {
  (void)context, (void)purpose;
  return hutch_curl_socket(address);
}
// The same for a transfer without callbacks.
static inline int hutch_curl_opens(CURL *easy) {
  return curl_easy_setopt(easy, CURLOPT_OPENSOCKETFUNCTION, hutch_curl_open) == CURLE_OK;
}

// Of curl_easy_getinfo; 0 or NULL if libcurl does not know.
static inline int64_t hutch_curl_info_number(CURL *easy, CURLINFO info) {
  long value = 0;
  return curl_easy_getinfo(easy, info, &value) == CURLE_OK ? value : 0;
}
static inline int64_t hutch_curl_info_size(CURL *easy, CURLINFO info) {
  curl_off_t value = 0;
  return curl_easy_getinfo(easy, info, &value) == CURLE_OK ? value : 0;
}
static inline void *hutch_curl_info_pointer(CURL *easy, CURLINFO info) {
  void *value = 0;
  return curl_easy_getinfo(easy, info, &value) == CURLE_OK ? value : 0;
}

static inline int hutch_curl_multi_number(CURLM *multi, CURLMoption option, long value) {
  return curl_multi_setopt(multi, option, value) == CURLM_OK;
}
// What libcurl calls when it wants other sockets watched, or another time to be called at.
static inline int hutch_curl_multi_callbacks(CURLM *multi, void *context,
                                             curl_socket_callback sockets,
                                             curl_multi_timer_callback timer) {
  return curl_multi_setopt(multi, CURLMOPT_SOCKETFUNCTION, sockets) == CURLM_OK &&
         curl_multi_setopt(multi, CURLMOPT_SOCKETDATA, context) == CURLM_OK &&
         curl_multi_setopt(multi, CURLMOPT_TIMERFUNCTION, timer) == CURLM_OK &&
         curl_multi_setopt(multi, CURLMOPT_TIMERDATA, context) == CURLM_OK;
}
static inline int hutch_curl_share_data(CURLSH *share, curl_lock_data data) {
  return curl_share_setopt(share, CURLSHOPT_SHARE, data) == CURLSHE_OK;
}

// The result of a transfer that a message reports.
static inline CURLcode hutch_curl_result(const CURLMsg *message) { return message->data.result; }

#endif
