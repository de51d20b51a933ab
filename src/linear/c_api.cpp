// SPDX-License-Identifier: Apache-2.0
// The C interface: every call turns exceptions into a status and a message of the thread.
#include <slimgemm/slimgemm.h>

#include <slimgemm/slimgemm.hpp>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <new>
#include <span>
#include <string>

struct slimgemm_packed {
  slimgemm::PackedMatrix matrix;
};
struct slimgemm_linear {
  slimgemm::Linear linear;
};

namespace {

thread_local std::string last_error;

slimgemm_status fail(slimgemm_status status, const char* message) {
  last_error = message;
  return status;
}

template <class Body>
slimgemm_status guarded(Body&& body) noexcept {
  try {
    body();
    return SLIMGEMM_OK;
  } catch (const slimgemm::Error& error) {
    return fail(static_cast<slimgemm_status>(error.code()), error.what());
  } catch (const std::bad_alloc&) {
    return fail(SLIMGEMM_OUT_OF_MEMORY, "out of host memory");
  } catch (const std::exception& error) {
    return fail(SLIMGEMM_DEVICE_ERROR, error.what());
  }
}

template <class T>
T& required(T* pointer, const char* what) {
  if (pointer == nullptr) {
    throw slimgemm::Error(slimgemm::ErrorCode::invalid_argument, std::string(what) + " is null");
  }
  return *pointer;
}

// A C caller may pass any value for an enumeration; C++ may read it only as a plain integer.
template <class Enum>
std::uint32_t raw_value(const Enum& value) {
  std::uint32_t raw = 0;
  static_assert(sizeof(value) == sizeof(raw));
  std::memcpy(&raw, &value, sizeof(raw));
  return raw;
}

std::size_t element_count(int64_t n, int64_t k) {
  const bool valid =
      n >= 1 && k >= 1 && n <= slimgemm::max_dimension && k <= slimgemm::max_dimension;
  // pack() refuses such sizes by name; here they must only not wrap around.
  return valid ? static_cast<std::size_t>(n) * static_cast<std::size_t>(k) : 0;
}

// The options of a caller that may be older or newer than this library: what it does not have is
// zero, what this library does not know must be.
slimgemm_linear_options known_options(const slimgemm_linear_options& given) {
  // The first version of the struct: this does not move when fields are appended.
  constexpr std::size_t size_min =
      offsetof(slimgemm_linear_options, programmatic_launch) + sizeof(given.programmatic_launch);
  constexpr std::size_t size_max = 4096;  // larger is a struct_size that was never set
  const std::size_t size = given.struct_size;
  if (size < size_min || size > size_max) {
    throw slimgemm::Error(slimgemm::ErrorCode::invalid_argument,
                          "options.struct_size is " + std::to_string(size) +
                              ": it must be sizeof(slimgemm_linear_options), here " +
                              std::to_string(sizeof(given)));
  }
  // From the last field that this library knows: the next one may lie in what is padding here.
  constexpr std::size_t known_end =
      offsetof(slimgemm_linear_options, batch_invariant) + sizeof(given.batch_invariant);
  const auto* const bytes = reinterpret_cast<const unsigned char*>(&given);
  for (std::size_t i = known_end; i < size; ++i) {
    if (bytes[i] != 0) {
      throw slimgemm::Error(slimgemm::ErrorCode::unsupported,
                            "options has a value at byte " + std::to_string(i) +
                                ", in a field that SlimGEMM " SLIMGEMM_VERSION
                                " does not know: leave it zero, or use a newer library");
    }
  }
  slimgemm_linear_options known{};
  std::memcpy(&known, bytes, std::min(size, sizeof(known)));
  return known;
}

bool flag(int32_t value, const char* name) {
  if (value != 0 && value != 1) {
    throw slimgemm::Error(
        slimgemm::ErrorCode::invalid_argument,
        std::string(name) + " is " + std::to_string(value) + ": it must be 0 or 1");
  }
  return value == 1;
}

}  // namespace

extern "C" {

const char* slimgemm_last_error(void) { return last_error.c_str(); }
const char* slimgemm_version(void) { return SLIMGEMM_VERSION; }

slimgemm_status slimgemm_pack(const void* w, slimgemm_dtype dtype, int64_t n, int64_t k,
                              int threads, slimgemm_packed** packed) {
  return guarded([&] {
    required(packed, "packed") = nullptr;
    required(static_cast<const char*>(w), "w");
    const slimgemm::PackOptions options{.threads = threads};
    const std::size_t count = element_count(n, k);
    const std::uint32_t type = raw_value(dtype);
    if (type == SLIMGEMM_BF16) {
      *packed = new slimgemm_packed{
          slimgemm::pack(std::span(static_cast<const uint16_t*>(w), count), n, k, options)};
    } else if (type == SLIMGEMM_F32) {
      *packed = new slimgemm_packed{
          slimgemm::pack(std::span(static_cast<const float*>(w), count), n, k, options)};
    } else {
      throw slimgemm::Error(slimgemm::ErrorCode::invalid_argument,
                            "dtype is " + std::to_string(type) +
                                ": it must be SLIMGEMM_BF16 (1) or SLIMGEMM_F32 (2)");
    }
  });
}

slimgemm_status slimgemm_packed_from_bytes(const void* bytes, size_t size,
                                           slimgemm_packed** packed) {
  return guarded([&] {
    required(packed, "packed") = nullptr;
    const auto* data = &required(static_cast<const std::byte*>(bytes), "bytes");
    *packed = new slimgemm_packed{slimgemm::PackedMatrix::from_bytes({data, size})};
  });
}

slimgemm_status slimgemm_packed_bytes(const slimgemm_packed* packed, const void** bytes,
                                      size_t* size) {
  return guarded([&] {
    const auto view = required(packed, "packed").matrix.bytes();
    required(bytes, "bytes") = view.data();
    required(size, "size") = view.size();
  });
}

slimgemm_status slimgemm_unpack(const slimgemm_packed* packed, void* out, size_t out_bytes,
                                int threads) {
  return guarded([&] {
    const auto& matrix = required(packed, "packed").matrix;
    required(static_cast<char*>(out), "out");
    const auto expected =
        static_cast<size_t>(matrix.n() * matrix.k() * slimgemm::size_bytes(matrix.dtype()));
    if (out_bytes != expected) {
      throw slimgemm::Error(slimgemm::ErrorCode::invalid_argument,
                            "out_bytes is " + std::to_string(out_bytes) + ": the matrix has " +
                                std::to_string(expected) + " bytes");
    }
    if (matrix.dtype() == slimgemm::DType::bf16) {
      unpack(matrix, std::span(static_cast<uint16_t*>(out), out_bytes / 2), threads);
    } else {
      unpack(matrix, std::span(static_cast<float*>(out), out_bytes / 4), threads);
    }
  });
}

void slimgemm_packed_free(slimgemm_packed* packed) { delete packed; }

slimgemm_status slimgemm_linear_create(const slimgemm_packed* packed, slimgemm_device device,
                                       int cuda_device, slimgemm_linear** linear) {
  return guarded([&] {
    required(linear, "linear") = nullptr;
    *linear = new slimgemm_linear{slimgemm::Linear(
        required(packed, "packed").matrix,
        {.device = static_cast<slimgemm::Device>(raw_value(device)), .cuda_device = cuda_device})};
  });
}

slimgemm_status slimgemm_linear_create_with(const slimgemm_packed* packed,
                                            const slimgemm_linear_options* options,
                                            slimgemm_linear** linear) {
  return guarded([&] {
    required(linear, "linear") = nullptr;
    const auto& matrix = required(packed, "packed").matrix;
    const slimgemm_linear_options known = known_options(required(options, "options"));
    *linear = new slimgemm_linear{slimgemm::Linear(
        matrix,
        {.device = static_cast<slimgemm::Device>(known.device),
         .cuda_device = known.cuda_device,
         .cpu_threads = known.cpu_threads,
         .programmatic_launch = flag(known.programmatic_launch, "options.programmatic_launch"),
         .batch_invariant = flag(known.batch_invariant, "options.batch_invariant")})};
  });
}

slimgemm_status slimgemm_linear_run(const slimgemm_linear* linear, const uint16_t* x, int64_t m,
                                    void* out, void* stream, int64_t x_row_stride) {
  return guarded([&] { required(linear, "linear").linear.run(x, m, out, stream, x_row_stride); });
}

void slimgemm_linear_free(slimgemm_linear* linear) { delete linear; }

}  // extern "C"
