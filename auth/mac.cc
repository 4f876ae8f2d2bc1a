#include "auth/mac.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/params.h>
#include <openssl/rand.h>

#include <atomic>
#include <memory>
#include <utility>

namespace ringpipe {
namespace {

struct FreeMac {
  void operator()(EVP_MAC* mac) const { EVP_MAC_free(mac); }
  void operator()(EVP_MAC_CTX* context) const { EVP_MAC_CTX_free(context); }
};

using MacContext = std::unique_ptr<EVP_MAC_CTX, FreeMac>;

// Threads of ringpipe's still run when the process exits: OpenSSL must not free
// its tables under them. No effect where the program has used it before.
void KeepOpensslAtExit() {
  static_cast<void>(OPENSSL_init_crypto(OPENSSL_INIT_NO_ATEXIT, nullptr));
}

const unsigned char* Unsigned(std::string_view bytes) {
  // OpenSSL takes a null key for "the key of before", not for an empty one.
  static const char kNothing = 0;
  return reinterpret_cast<const unsigned char*>(bytes.empty() ? &kNothing
                                                              : bytes.data());
}

// With any key.
MacContext NewContext() {
  KeepOpensslAtExit();
  const std::unique_ptr<EVP_MAC, FreeMac> mac(
      EVP_MAC_fetch(nullptr, "HMAC", nullptr));
  MacContext context(mac == nullptr ? nullptr : EVP_MAC_CTX_new(mac.get()));
  char digest[] = "SHA256";
  const OSSL_PARAM parameters[] = {
      OSSL_PARAM_construct_utf8_string("digest", digest, 0),
      OSSL_PARAM_construct_end()};
  return context != nullptr && EVP_MAC_init(context.get(), Unsigned("key"), 3,
                                            parameters) == 1
             ? std::move(context)
             : nullptr;
}

// Copied for each MAC. It has what OpenSSL has to look up in its tables, which
// it frees at exit where the program has used it first; so it is never freed.
const EVP_MAC_CTX* Template() {
  static std::atomic<EVP_MAC_CTX*> made = nullptr;
  EVP_MAC_CTX* expected = made.load(std::memory_order_acquire);
  if (expected != nullptr) {
    return expected;
  }
  MacContext context = NewContext();
  if (context != nullptr &&
      made.compare_exchange_strong(expected, context.get(),
                                   std::memory_order_acq_rel)) {
    expected = context.release();
  }
  return expected;
}

}  // namespace

Result<Mac> ComputeMac(std::string_view key,
                       std::initializer_list<std::string_view> parts) {
  const Status failed(StatusCode::kUnavailable,
                      "OpenSSL cannot compute HMAC-SHA256; check its "
                      "configuration (OPENSSL_CONF, FIPS mode)");
  const EVP_MAC_CTX* const keyed = Template();
  const MacContext context(keyed == nullptr ? nullptr : EVP_MAC_CTX_dup(keyed));
  if (context == nullptr ||
      EVP_MAC_init(context.get(), Unsigned(key), key.size(), nullptr) != 1) {
    return failed;
  }
  for (const std::string_view part : parts) {
    if (EVP_MAC_update(context.get(), Unsigned(part), part.size()) != 1) {
      return failed;
    }
  }
  Mac result;
  size_t written = 0;
  if (EVP_MAC_final(context.get(),
                    reinterpret_cast<unsigned char*>(result.data()), &written,
                    result.size()) != 1 ||
      written != result.size()) {
    return failed;
  }
  return result;
}

bool MacsEqual(const Mac& left, std::string_view right) {
  return left.size() == right.size() &&
         CRYPTO_memcmp(left.data(), right.data(), left.size()) == 0;
}

Result<Nonce> RandomNonce() {
  KeepOpensslAtExit();
  Nonce nonce;
  if (RAND_bytes(reinterpret_cast<unsigned char*>(nonce.data()),
                 static_cast<int>(nonce.size())) != 1) {
    return Status(StatusCode::kUnavailable,
                  "OpenSSL's random generator has no entropy");
  }
  return nonce;
}

}  // namespace ringpipe
