// A file system for SQLite in which the n-th access fails.
#pragma once

#include <sqlite3.h>

#include <cstring>
#include <string>

namespace tw::test {

// While it lives, databases are opened through it.  Everything goes to the system's own file system until access
// `first`, counted from 0; that one fails, and with `for_good` all that come after, as on a disk that is full or gone.
// A write that fails may have written half.
class FaultyFiles {
 public:
  enum class Kind { error, full, half_written };

  FaultyFiles(int64_t first, Kind kind, bool for_good) : left_(first), kind_(kind), for_good_(for_good) {
    system_ = sqlite3_vfs_find(nullptr);
    files_ = *system_;
    files_.zName = "faulty";
    files_.szOsFile = static_cast<int>(sizeof(File)) + system_->szOsFile;
    files_.pAppData = this;
    files_.xOpen = open;
    files_.xDelete = [](sqlite3_vfs* files, const char* name, int syncs) {
      auto& self = *static_cast<FaultyFiles*>(files->pAppData);
      return self.fails() ? SQLITE_IOERR_DELETE : self.system_->xDelete(self.system_, name, syncs);
    };
    sqlite3_vfs_register(&files_, 1);
  }
  ~FaultyFiles() {
    sqlite3_vfs_register(system_, 1);
    sqlite3_vfs_unregister(&files_);
  }
  FaultyFiles(const FaultyFiles&) = delete;
  FaultyFiles& operator=(const FaultyFiles&) = delete;

  int64_t accesses() const { return accesses_; }
  bool has_failed() const { return has_failed_; }

 private:
  struct File {
    sqlite3_file base;
    FaultyFiles* owner;
    sqlite3_file* real;
  };
  static sqlite3_file* real(sqlite3_file* file) { return reinterpret_cast<File*>(file)->real; }

  bool fails() {
    ++accesses_;
    if (has_failed_ && for_good_) return true;
    if (left_-- != 0) return false;
    return has_failed_ = true;
  }
  static bool fails(sqlite3_file* file) { return reinterpret_cast<File*>(file)->owner->fails(); }

  static int open(sqlite3_vfs* files, const char* name, sqlite3_file* file, int flags, int* out_flags) {
    auto& self = *static_cast<FaultyFiles*>(files->pAppData);
    auto& ours = *reinterpret_cast<File*>(file);
    ours.base.pMethods = nullptr;
    ours.owner = &self;
    ours.real = reinterpret_cast<sqlite3_file*>(&ours + 1);
    if (self.fails()) return SQLITE_CANTOPEN;
    const int result = self.system_->xOpen(self.system_, name, ours.real, flags, out_flags);
    if (ours.real->pMethods) ours.base.pMethods = &methods();
    return result;
  }

  static int write(sqlite3_file* file, const void* data, int bytes, sqlite3_int64 at) {
    if (!fails(file)) return real(file)->pMethods->xWrite(real(file), data, bytes, at);
    const FaultyFiles& owner = *reinterpret_cast<File*>(file)->owner;
    if (owner.kind_ == Kind::half_written) real(file)->pMethods->xWrite(real(file), data, bytes / 2, at);
    return owner.kind_ == Kind::full ? SQLITE_FULL : SQLITE_IOERR_WRITE;
  }

  static const sqlite3_io_methods& methods() {
    static const sqlite3_io_methods table = [] {
      sqlite3_io_methods m{};
      m.iVersion = 1;  // no shared memory: the journal is a rollback one
      m.xClose = [](sqlite3_file* f) { return real(f)->pMethods->xClose(real(f)); };
      m.xRead = [](sqlite3_file* f, void* data, int bytes, sqlite3_int64 at) {
        if (!fails(f)) return real(f)->pMethods->xRead(real(f), data, bytes, at);
        std::memset(data, 0, static_cast<size_t>(bytes));
        return SQLITE_IOERR_READ;
      };
      m.xWrite = write;
      m.xTruncate = [](sqlite3_file* f, sqlite3_int64 size) {
        return fails(f) ? SQLITE_IOERR_TRUNCATE : real(f)->pMethods->xTruncate(real(f), size);
      };
      m.xSync = [](sqlite3_file* f, int flags) {
        return fails(f) ? SQLITE_IOERR_FSYNC : real(f)->pMethods->xSync(real(f), flags);
      };
      m.xFileSize = [](sqlite3_file* f, sqlite3_int64* size) { return real(f)->pMethods->xFileSize(real(f), size); };
      m.xLock = [](sqlite3_file* f, int level) { return real(f)->pMethods->xLock(real(f), level); };
      m.xUnlock = [](sqlite3_file* f, int level) { return real(f)->pMethods->xUnlock(real(f), level); };
      m.xCheckReservedLock = [](sqlite3_file* f, int* out) {
        return real(f)->pMethods->xCheckReservedLock(real(f), out);
      };
      m.xFileControl = [](sqlite3_file* f, int code, void* argument) {
        return real(f)->pMethods->xFileControl(real(f), code, argument);
      };
      m.xSectorSize = [](sqlite3_file* f) { return real(f)->pMethods->xSectorSize(real(f)); };
      m.xDeviceCharacteristics = [](sqlite3_file* f) { return real(f)->pMethods->xDeviceCharacteristics(real(f)); };
      return m;
    }();
    return table;
  }

  sqlite3_vfs* system_ = nullptr;
  sqlite3_vfs files_{};
  int64_t left_, accesses_ = 0;
  Kind kind_;
  bool for_good_, has_failed_ = false;
};

}  // namespace tw::test
