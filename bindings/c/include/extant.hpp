// ext4 images in C++17: extant.h with owners that close themselves and errors as std::system_error.
// SPDX-License-Identifier: MIT OR Apache-2.0
#pragma once

#include "extant.h"

#include <fcntl.h>
#include <memory>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

namespace extant {

// Throws for a negative number, with the library's text.
inline long check(long done) {
    if (done < 0)
        throw std::system_error(static_cast<int>(-done), std::generic_category(), extant_last_error());
    return done;
}

class File {
public:
    File(extant_volume *volume, const std::string &path, int flags, uint32_t mode = 0644) {
        extant_file *file = nullptr;
        check(extant_open_file(volume, path.c_str(), flags, mode, &file));
        file_.reset(file);
    }

    File(extant_dir *dir, const std::string &path, int flags, uint32_t mode = 0644) {
        extant_file *file = nullptr;
        check(extant_openat(dir, path.c_str(), flags, mode, &file));
        file_.reset(file);
    }

    size_t read(void *buffer, size_t length, uint64_t offset) const {
        return static_cast<size_t>(check(extant_pread(file_.get(), buffer, length, offset)));
    }

    size_t write(const void *buffer, size_t length, uint64_t offset) {
        return static_cast<size_t>(check(extant_pwrite(file_.get(), buffer, length, offset)));
    }

    void sync() { check(extant_fsync(file_.get())); }

private:
    struct Close {
        void operator()(extant_file *file) const { extant_close_file(file); }
    };
    std::unique_ptr<extant_file, Close> file_;
};

// A directory from which paths start.
class Dir {
public:
    Dir(extant_volume *volume, const std::string &path) {
        extant_dir *dir = nullptr;
        check(extant_opendir(volume, path.c_str(), &dir));
        dir_.reset(dir);
    }

    Dir(extant_dir *from, const std::string &path) {
        extant_dir *dir = nullptr;
        check(extant_opendirat(from, path.c_str(), &dir));
        dir_.reset(dir);
    }

    File open(const std::string &path, int flags = O_RDONLY, uint32_t mode = 0644) {
        return File(dir_.get(), path, flags, mode);
    }
    Dir open_dir(const std::string &path) { return Dir(dir_.get(), path); }
    void mkdir(const std::string &path, uint32_t mode = 0755) { check(extant_mkdirat(dir_.get(), path.c_str(), mode)); }
    void unlink(const std::string &path) { check(extant_unlinkat(dir_.get(), path.c_str(), 0)); }

    struct extant_stat stat(const std::string &path, int flags = 0) {
        struct extant_stat st;
        check(extant_fstatat(dir_.get(), path.c_str(), &st, flags));
        return st;
    }

    std::vector<extant_dirent> list() {
        check(extant_rewinddir(dir_.get()));
        std::vector<extant_dirent> found;
        extant_dirent entry;
        while (check(extant_readdir(dir_.get(), &entry)) > 0)
            found.push_back(entry);
        return found;
    }

    extant_dir *get() const { return dir_.get(); }

private:
    struct Close {
        void operator()(extant_dir *dir) const { extant_closedir(dir); }
    };
    std::unique_ptr<extant_dir, Close> dir_;
};

class Volume {
public:
    explicit Volume(const std::string &path, unsigned flags = 0) {
        check(extant_open(path.c_str(), flags, &volume_));
    }

    static Volume create(const std::string &path, uint64_t size) {
        extant_create_options options{};
        options.size = size;
        Volume made;
        check(extant_create(path.c_str(), &options, &made.volume_));
        return made;
    }

    Volume(Volume &&other) noexcept : volume_(std::exchange(other.volume_, nullptr)) {}
    Volume &operator=(Volume &&other) noexcept {
        std::swap(volume_, other.volume_);
        return *this;
    }

    // A destructor cannot say that closing failed: call close() where that matters.
    ~Volume() { extant_close(volume_); }

    void close() { check(extant_close(std::exchange(volume_, nullptr))); }
    void sync() { check(extant_sync(volume_)); }
    File open(const std::string &path, int flags = O_RDONLY) { return File(volume_, path, flags); }
    void mkdir(const std::string &path, uint32_t mode = 0755) { check(extant_mkdir(volume_, path.c_str(), mode)); }
    void unlink(const std::string &path) { check(extant_unlink(volume_, path.c_str())); }
    void rename(const std::string &from, const std::string &to) {
        check(extant_rename(volume_, from.c_str(), to.c_str()));
    }

    struct extant_stat stat(const std::string &path) {
        struct extant_stat st;
        check(::extant_stat(volume_, path.c_str(), &st));
        return st;
    }

    Dir open_dir(const std::string &path) { return Dir(volume_, path); }
    std::vector<extant_dirent> list(const std::string &path) { return open_dir(path).list(); }

    extant_volume *get() const { return volume_; }

private:
    Volume() = default;
    extant_volume *volume_ = nullptr;
};

} // namespace extant
