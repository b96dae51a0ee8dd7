/* Runs a program that was compiled as a shared library, with nothing but that library able to find what it needs. */
#include <dlfcn.h>
#include <stdio.h>

int main(int argc, char **argv) {
    void *library = dlopen(EXTENSION, RTLD_NOW | RTLD_LOCAL);
    if (!library) {
        fprintf(stderr, "%s\n", dlerror());
        return 1;
    }
    int (*extension)(int, char **) = (int (*)(int, char **))dlsym(library, "extension");
    return extension(argc, argv);
}
