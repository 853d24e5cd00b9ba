#include "runtime/npy.h"

#include <charconv>
#include <string>

#include "runtime/artifact/file_map.h"

namespace tw {
namespace {

constexpr std::string_view npy_magic = "\x93NUMPY";

struct Refusal {
  const std::filesystem::path& path;
  [[noreturn]] void operator()(const std::string& problem) const {
    throw Error(ErrorCode::input, path.string() + ": " + problem + "\n  help: write it with numpy.save, in C order");
  }
};

std::string description_of(DType dtype) {
  if (dtype == bf16) return "<V2";
  if (dtype.is_narrow()) return "|V1";
  const char kind = dtype.is_bool() ? 'b' : dtype.is_float() ? 'f' : dtype.is_signed_integer() ? 'i' : 'u';
  return std::string(1, dtype.bytes() == 1 ? '|' : '<') + kind + std::to_string(dtype.bytes());
}

// Types that numpy does not have of its own are bytes in its files; `expected` says what these are.
DType parse_description(const std::string& text, DType expected, const Refusal& refuse) {
  for (const char* byte : {"|V1", "<V1", "<f1", "|f1", "|i1", "|u1"})
    if (expected.is_narrow() && text == byte) return expected;
  for (DType dtype : {f32, f64, f16, i8, i16, i32, i64, u8, u16, u32, u64, boolean}) {
    if (text == description_of(dtype)) return dtype == u16 && expected == bf16 ? bf16 : dtype;
  }
  if (text == "<V2" || text == "|V2" || text == "bfloat16") return bf16;
  refuse("its element type '" + text + "' is not one that models have");
}

// The text after 'key': in the header's dictionary.
std::string_view value_of(std::string_view header, std::string_view key, const Refusal& refuse) {
  size_t at = header.find("'" + std::string(key) + "'");
  size_t colon = at == std::string_view::npos ? at : header.find(':', at);
  if (colon == std::string_view::npos) refuse("its header has no '" + std::string(key) + "'");
  size_t start = header.find_first_not_of(' ', colon + 1);
  return start == std::string_view::npos ? std::string_view() : header.substr(start);
}

}  // namespace

NDArray read_npy(const std::filesystem::path& path, DType expected) {
  const Refusal refuse{path};
  std::shared_ptr<const FileMap> file = FileMap::open(path);
  std::string_view text(reinterpret_cast<const char*>(file->bytes().data()), file->bytes().size());
  if (text.size() < 12 || !text.starts_with(npy_magic)) refuse("not a .npy file");
  const bool is_first_version = text[6] == 1;
  if (text[6] < 1 || text[6] > 3) refuse("a .npy file of an unknown version");
  size_t length = static_cast<unsigned char>(text[8]) | static_cast<unsigned char>(text[9]) << 8;
  if (!is_first_version)
    length |= size_t{static_cast<unsigned char>(text[10])} << 16 | size_t{static_cast<unsigned char>(text[11])} << 24;
  const size_t start = is_first_version ? 10 : 12;
  if (length > text.size() - start) refuse("it ends inside its header");
  const std::string_view header = text.substr(start, length);

  std::string_view description = value_of(header, "descr", refuse);
  if (description.size() < 2 || description[0] != '\'') refuse("it holds records, not numbers");
  const DType dtype =
      parse_description(std::string(description.substr(1, description.find('\'', 1) - 1)), expected, refuse);
  const bool is_fortran = value_of(header, "fortran_order", refuse).starts_with("True");
  Shape shape;
  std::string_view extents = value_of(header, "shape", refuse);
  if (!extents.starts_with('(')) refuse("its shape is no tuple");
  extents = extents.substr(1, extents.find(')') - 1);
  for (size_t at = 0; at < extents.size();) {
    size_t end = std::min(extents.find(',', at), extents.size());
    std::string_view word = extents.substr(at, end - at);
    word.remove_prefix(std::min(word.find_first_not_of(' '), word.size()));
    int64_t extent = 0;
    if (!word.empty()) {
      auto [rest, error] = std::from_chars(word.data(), word.data() + word.size(), extent);
      if (error != std::errc() || rest != word.data() + word.size() || extent < 0)
        refuse("its shape has an extent that is no number");
      shape.push_back(extent);
    }
    at = end + 1;
  }
  if (is_fortran && shape.size() > 1) refuse("it is in Fortran order");
  if (element_count(shape) > static_cast<int64_t>(text.size())) refuse("it holds fewer bytes than its shape needs");
  NDArray result(dtype, shape);
  if (text.size() - start - length < result.byte_size()) refuse("it holds fewer bytes than its shape needs");
  if (result.byte_size() > 0) std::memcpy(result.data(), text.data() + start + length, result.byte_size());
  return result;
}

void write_npy(const std::filesystem::path& path, const NDArray& array) {
  std::string shape;
  for (int64_t extent : array.shape()) shape += std::to_string(extent) + ",";
  std::string header =
      "{'descr': '" + description_of(array.dtype()) + "', 'fortran_order': False, 'shape': (" + shape + "), }";
  header.resize((10 + header.size() + 1 + 63) / 64 * 64 - 10 - 1, ' ');
  header += '\n';
  std::string head(npy_magic);
  head += {1, 0, static_cast<char>(header.size() & 0xff), static_cast<char>(header.size() >> 8)};
  head += header;
  const std::span<const std::byte> parts[] = {std::as_bytes(std::span(head)),
                                              {static_cast<const std::byte*>(array.data()), array.byte_size()}};
  write_file(path, parts);
}

}  // namespace tw
