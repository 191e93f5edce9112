// The header for C++: what is opened closes itself, and errors are exceptions.
#include "extant.hpp"

#include <cassert>
#include <cerrno>
#include <cstdio>
#include <cstring>

int main(int, char **arguments) {
    std::string image = std::string(arguments[1]) + "/cpp.img";
    {
        auto volume = extant::Volume::create(image, 16 << 20);
        volume.mkdir("/d");
        auto file = volume.open("/d/f", O_RDWR | O_CREAT);
        file.write("hello", 5, 0);
        file.sync();
        auto moved = std::move(volume);
        moved.rename("/d/f", "/f");
        auto dir = moved.open_dir("/d");
        dir.mkdir("below");
        dir.open_dir("below").open("g", O_WRONLY | O_CREAT).write("x", 1, 0);
        if (dir.stat("below/g").size != 1 || dir.list().size() != 1)
            return 1;
        if (moved.list("/").size() != 3 || moved.stat("/f").size != 5)
            return 1;
    }
    extant::Volume volume(image, EXTANT_READ_ONLY);
    char buffer[5];
    if (volume.open("/f").read(buffer, 5, 0) != 5 || std::memcmp(buffer, "hello", 5) != 0)
        return 1;
    try {
        volume.unlink("/f");
        return 1;
    } catch (const std::system_error &error) {
        if (error.code().value() != EROFS)
            return 1;
    }
    volume.close();
    std::puts("all is well");
    return 0;
}
