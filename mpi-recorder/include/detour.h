/* Names regions of a program for Detour. Without the collector both functions do nothing, so a program can
 * be compiled with them once and for all; nothing needs to be linked.
 *
 *     detour_region_begin("solve");
 *     ...
 *     detour_region_end();
 */
#ifndef DETOUR_H
#define DETOUR_H

#ifdef __cplusplus
extern "C" {
#endif

/* Provided by the collector when it is preloaded, else null. */
void __attribute__((weak)) detour_region_begin(const char *name);
void __attribute__((weak)) detour_region_end(void);

#define detour_region_begin(name) \
    do { if (detour_region_begin) (detour_region_begin)(name); } while (0)
#define detour_region_end() \
    do { if (detour_region_end) (detour_region_end)(); } while (0)

#ifdef __cplusplus
}
#endif

#endif
