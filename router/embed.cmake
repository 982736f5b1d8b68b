# cmake -DSOURCE=FILE -DNAME=ARRAY -DOUTPUT=FILE -P embed.cmake
# Writes the bytes of SOURCE as a C array, ended by a 0, to OUTPUT.
file(READ ${SOURCE} bytes HEX)
string(REGEX REPLACE "([0-9a-f][0-9a-f])" "'\\\\x\\1'," bytes "${bytes}")
file(WRITE ${OUTPUT} "extern const char ${NAME}[];\nconst char ${NAME}[] = {${bytes}0};\n")
