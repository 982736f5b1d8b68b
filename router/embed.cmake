# Writes SOURCE as a C array of the given NAME to OUTPUT: cmake -DSOURCE= -DNAME= -DOUTPUT= -P embed.cmake
file(READ ${SOURCE} bytes HEX)
string(REGEX REPLACE "([0-9a-f][0-9a-f])" "0x\\1," bytes "${bytes}")
file(WRITE ${OUTPUT} "extern const char ${NAME}[];\nconst char ${NAME}[] = {${bytes}0};\n")
